package store

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
)

// backedUp lists what goes into a backup, in this order, before the roads: a reader
// knows what is forgotten and what was revoked before anything else. Left out are
// telemetry, with the cursors that count in it, the audit, and heartbeats. Each record
// is as it was at some moment between the beginning and the end of the backup.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"}},
	{codec.States, []string{"state.*.*"}},
}

// Backup writes all that is stored but telemetry, audit and what a node makes for
// itself, while the service goes on. It says how many records there were.
func (k *Keeper) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	b, err := backupfile.NewWriter(w, backupfile.Header{Version: version, Began: k.now().UTC().Truncate(time.Millisecond), Partitions: k.engine.Partitions()})
	if err != nil {
		return 0, err
	}
	for _, part := range backedUp {
		err := k.engine.Scan(ctx, part.stream, part.subjects, func(r Record) error {
			if strings.HasPrefix(r.Subject, "state.") && codec.IsMarker(r.Body) {
				return nil // it would name who is forgotten
			}
			return b.Add(r.Subject, r.Sealed)
		})
		if err != nil {
			return 0, fmt.Errorf("the backup of %s failed: %w", part.stream, err)
		}
	}
	if err := k.backUpRoads(ctx, b); err != nil {
		return 0, err
	}
	return b.Records(), b.End()
}
