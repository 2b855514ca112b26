import gzip
import io
import stat
import tarfile
import zipfile

import pytest

from quant.data.sources.archives import Limits, copy_member, is_archive, open_archive
from quant.data.sources.contents import NotInsideError, nearest, take_out
from quant.data.sources.references import Inside
from quant.errors import SourceError


@pytest.fixture
def take(tmp_path):
    """Unpacks all, or a place inside, of an archive given as bytes."""

    def take(content, file=None, **options):
        path = tmp_path / "in.archive"
        path.write_bytes(content)
        folder = tmp_path / "out"
        folder.mkdir()
        return take_out(path, Inside.of(file), folder, name="all", **options)

    return take


FILES = {"top/a.txt": b"a", "top/sub/b.txt": b"bb", "top/sub/c.bin": b"\0" * 5000}


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz", "zip"])
def test_every_form_of_archive_gives_back_the_bytes_that_went_in(take, make_tar, make_zip, mode):
    out = take(make_zip(FILES) if mode == "zip" else make_tar(FILES, mode=mode))
    assert {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()} == FILES


def test_only_what_is_asked_is_unpacked(take, make_tar):
    out = take(make_tar(FILES), "sub/", strip=True)
    assert out.name == "sub"
    assert sorted(path.name for path in out.parent.rglob("*")) == ["b.txt", "c.bin", "sub"]


def test_a_star_takes_the_matching_files_of_one_folder(take, make_zip):
    out = take(make_zip({"d/x_1.jpg": b"1", "d/x_2.jpg": b"2", "d/y.jpg": b"3", "d/e/x_3.jpg": b"4"}), "d/x_*.jpg")
    assert out.name == "d"
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*")) == ["x_1.jpg", "x_2.jpg"]


def test_archives_in_archives_are_walked_through(take, make_tar, make_zip):
    content = make_zip({"one/two.tar.gz": make_tar({"three.zip": make_zip({"four.txt": b"found"})})})
    assert take(content, "one/two.tar.gz!/three.zip!/four.txt").read_bytes() == b"found"


def test_a_missing_file_is_an_error_with_the_nearest_names(take, make_tar):
    with pytest.raises(NotInsideError, match=r"no 'top/sub/b\.text'") as caught:
        take(make_tar(FILES), "top/sub/b.text")
    assert "top/sub/b.txt" in caught.value.hint


def test_nearest_prefers_the_same_file_name_then_the_same_ending():
    assert nearest("b.txt", ["x/b.txt", "c.py"]) == ["x/b.txt"]
    assert nearest("model.pth", ["LICENSE", "deep/down/weights-57934424.pth"]) == ["deep/down/weights-57934424.pth"]


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "C:/evil", "a\\..\\..\\evil"])
@pytest.mark.parametrize("form", ["make_tar", "make_zip"])
def test_a_name_that_leaves_the_folder_is_refused_and_named(take, request, tmp_path, name, form):
    before = set(tmp_path.parent.iterdir())
    with pytest.raises(SourceError, match=r"evil.*would leave the folder"):
        take(request.getfixturevalue(form)({"ok": b"", name: b"x"}))
    assert set(tmp_path.parent.iterdir()) == before
    assert not any(path.name == "evil" for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "sub/../../outside"])
def test_a_link_that_leaves_the_archive_is_refused_and_named(take, make_tar, target):
    with pytest.raises(SourceError, match=r"'top' of the archive is a link that leaves it"):
        take(make_tar({"a": b""}, links={"top": target}))


def test_a_file_cannot_be_written_through_a_link(take, make_tar, tmp_path):
    with pytest.raises(SourceError, match=r"leaves it|in the way"):
        take(make_tar({"d/evil": b"x"}, links={"d": str(tmp_path)}))
    assert not (tmp_path / "evil").exists()


def test_a_zip_link_that_leaves_the_archive_is_refused(take):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../../outside")
    with pytest.raises(SourceError, match=r"'link' of the archive is a link that leaves it"):
        take(out.getvalue())


def test_a_link_that_stays_inside_gives_the_bytes_it_points_to(take, make_tar):
    out = take(make_tar({"d/a.txt": b"here"}, links={"d/b.txt": "a.txt", "c.txt": "d/b.txt"}))
    assert (out / "c.txt").read_bytes() == b"here"
    assert not (out / "c.txt").is_symlink()


def test_a_circle_of_links_is_an_error(take, make_tar):
    with pytest.raises(SourceError, match=r"is a link to"):
        take(make_tar({}, links={"a": "b", "b": "a"}))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.BLKTYPE])
def test_a_device_is_refused_and_named(take, kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("dev/thing")
        info.type = kind
        tar.addfile(info)
    with pytest.raises(SourceError, match=r"'dev/thing' of the archive is neither a file nor a link"):
        take(out.getvalue())


def test_a_bomb_is_refused_without_being_unpacked(tmp_path, make_tar, make_zip):
    limits = Limits(ratio=50, free_bytes=100_000)
    for content in (make_tar({"zeros": bytes(1_000_000)}), make_zip({"zeros": bytes(1_000_000)})):
        path = tmp_path / "bomb"
        path.write_bytes(content)
        with pytest.raises(SourceError, match=r"unpacks to more than 100000 bytes.*'zeros'"), open_archive(path, limits=limits):
            pass


def test_total_size_and_number_of_members_are_bounded(tmp_path, make_zip):
    path = tmp_path / "large.zip"
    path.write_bytes(make_zip({f"f{number}": b"1234567890" for number in range(10)}))
    with pytest.raises(SourceError, match=r"more than 99 bytes.*'f9'"), open_archive(path, limits=Limits(total_bytes=99)):
        pass
    with pytest.raises(SourceError, match=r"more than 9 members.*'f9'"), open_archive(path, limits=Limits(members=9)):
        pass
    with open_archive(path, limits=Limits(total_bytes=100, members=10)) as (_, members):
        assert len(members) == 10


def test_a_header_that_claims_gigabytes_of_memory_is_refused(tmp_path):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    path = tmp_path / "long.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)))
    with pytest.raises(SourceError, match=r"a header of the archive claims"), open_archive(path):
        pass


@pytest.mark.parametrize("form", ["w:gz", "w:xz", "w:bz2", "zip"])
def test_a_damaged_archive_is_an_error_in_words(take, make_tar, make_zip, form):
    noise = {"a": bytes(range(256)) * 40}
    content = make_zip(noise) if form == "zip" else make_tar(noise, mode=form)
    with pytest.raises(SourceError, match=r"damaged or cannot be read"):
        take(content[: len(content) // 2])


def test_what_is_no_archive_says_so(take, tmp_path):
    with pytest.raises(SourceError, match=r"no archive that can be opened"):
        take(b"plain text")
    assert not is_archive(tmp_path / "in.archive")


def test_an_encrypted_member_is_an_error_in_words(tmp_path, make_zip):
    content = bytearray(make_zip({"secret": b"x" * 100}))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + offset] |= 1
    path = tmp_path / "secret.zip"
    path.write_bytes(content)
    with open_archive(path) as (archive, members), pytest.raises(SourceError, match=r"'secret' is damaged or cannot be read: it is encrypted"):
        copy_member(archive, members, "secret", tmp_path / "out")


def test_a_file_in_the_way_of_a_folder_is_an_error(take, make_tar):
    with pytest.raises(SourceError, match=r"in the way of another member"):
        take(make_tar({"a": b"1", "a/b": b"2"}))
