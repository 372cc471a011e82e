package main

import (
	"os"

	"carstate/internal/query"
)

// openAccessLog opens the log that --access-log names; nil if it names none.
func (s *service) openAccessLog() (*query.AccessLog, error) {
	c := query.AccessLogConfig{
		File: s.flags.AccessLog, JSON: s.flags.LogFormat == "json", Log: s.log, Registry: s.registry,
	}
	switch c.File {
	case "":
		return nil, nil
	case "-":
		c.File, c.Out = "", os.Stdout
	}
	return query.OpenAccessLog(c)
}

// closeAccessLog writes what is left of it, after the last answer.
func (s *service) closeAccessLog() {
	if s.accessLog != nil {
		if err := s.accessLog.Close(); err != nil {
			s.log.Warn("the access log was not closed", "error", err)
		}
	}
}
