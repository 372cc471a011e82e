package access

import "time"

type BackupInfo struct {
	Version    string         `json:"version"` // of the carstate that wrote it
	Began      time.Time      `json:"began"`
	Partitions int            `json:"partitions"`
	Records    int            `json:"records"`
	Kinds      map[string]int `json:"kinds"` // records, by kind
	// by a backup key that the reading service has
	Authenticated bool `json:"authenticated,omitzero"`
}

// BadBackup is why nothing of a backup is restored. It may be shown to the caller.
type BadBackup string

func (e BadBackup) Error() string { return string(e) }

type RestoreOptions struct {
	Key     string // of the service that wrote the backup; the restoring service's own keys are accepted, too
	Anybody bool   // accept any origin, without authentication
	Compare bool   // change nothing
}

type RestoreReport struct {
	Backup BackupInfo              `json:"backup"`
	Kinds  map[string]RestoreCount `json:"kinds"`
}

type RestoreCount struct {
	Restored int `json:"restored,omitzero"`
	// already in the service, as after an interrupted restore
	Kept int `json:"kept,omitzero"`
	// of forgotten vehicles, so not restored
	Forgotten int `json:"forgotten,omitzero"`

	// Of a comparison. Newer and Older count states, by the time of their last sample.
	Equal     int `json:"equal,omitzero"`
	Newer     int `json:"newer,omitzero"` // in the service than in the backup
	Older     int `json:"older,omitzero"`
	Different int `json:"different,omitzero"`
	Missing   int `json:"missing,omitzero"` // in the service
}

func (n RestoreCount) Plus(m RestoreCount) RestoreCount {
	return RestoreCount{
		n.Restored + m.Restored, n.Kept + m.Kept, n.Forgotten + m.Forgotten,
		n.Equal + m.Equal, n.Newer + m.Newer, n.Older + m.Older, n.Different + m.Different, n.Missing + m.Missing,
	}
}
