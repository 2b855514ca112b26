"""ONNX Runtime as the toolkit's own calculator."""

from quant.graph.runtime import plain_options


def test_threads_stop_when_a_run_is_over_so_that_sessions_timed_in_turns_do_not_disturb_each_other():
    assert plain_options(threads=2).get_session_config_entry("session.force_spinning_stop") == "1"
