"""The planner: predicted errors and costs in, the best choice of formats out. It knows neither graphs nor engines."""
