package store

// Names of gauges that other packages read. All but MetricBacklog have the label stream.
const (
	MetricBacklog = "carstate_backlog_seconds"
	MetricFeedAge = "carstate_feed_age_seconds"
	MetricBytes   = "carstate_stream_bytes"
	MetricLimit   = "carstate_stream_limit_bytes"
)
