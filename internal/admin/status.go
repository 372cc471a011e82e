package admin

import (
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

func (s *Server) showStatus(r *http.Request, _ nothing) (wire.Status, error) {
	status := wire.Status{
		Version: s.cfg.Version, Ready: true, Operators: len(s.ops.Credentials(access.OperatorKind)),
		NewerRecords: append([]string{}, s.cfg.Newer()...), DataDirBytes: make(map[string]float64),
	}
	if err := s.cfg.Ready(); err != nil {
		status.Ready, status.Reason = false, oneLine(err)
	}
	if age, ok := s.cfg.FeedAge(); ok {
		status.FeedAgeSeconds = new(age.Seconds())
	}
	readGauges(s.cfg.Gatherer, &status)
	page, err := s.ops.Audit(r.Context(), ops.AuditQuery{Action: "backup.take", Limit: 1})
	if err != nil {
		return wire.Status{}, err
	}
	if len(page.Events) > 0 {
		status.LastBackupAt = &page.Events[0].Time
	}
	status.NeverBackedUp = len(page.Events) == 0 && page.Older == 0
	return status, nil
}

// A gauge that is NaN is unknown.
func readGauges(g prometheus.Gatherer, status *wire.Status) {
	known := map[string]**float64{
		"carstate_vehicles": &status.Vehicles, "carstate_vehicles_limit": &status.VehiclesLimit,
		"carstate_tokens": &status.Tokens, "carstate_sources": &status.Sources,
		"carstate_data_dir_free_bytes": &status.DiskFreeBytes,
	}
	families, _ := g.Gather() // despite an error, Gather returns the rest
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue()
			if to := known[f.GetName()]; to != nil && !math.IsNaN(value) {
				*to = &value
			} else if f.GetName() == "carstate_data_dir_bytes" {
				status.DataDirBytes[m.GetLabel()[0].GetValue()] = value
			}
		}
	}
	if limit := status.VehiclesLimit; limit != nil && *limit == 0 {
		status.VehiclesLimit = nil
	}
}
