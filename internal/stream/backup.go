package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"carstate/internal/access"
	"carstate/internal/road"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// backedUp lists what goes into a backup, in this order, before the roads.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"}},
	{States, []string{"state.*.*"}},
}

// Backup writes all that is stored but telemetry, audit and what a node makes for
// itself, while the service goes on. It says how many records there were.
func (e *Engine) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	b := newBackupWriter(w)
	if err := b.begin(backupHeader{version, e.now().UTC().Truncate(time.Millisecond), e.partitions}); err != nil {
		return 0, err
	}
	for _, part := range backedUp {
		err := e.readStored(ctx, part.stream, part.subjects, func(r record) error {
			if strings.HasPrefix(r.subject, "state.") && codec.IsMarker(r.body) {
				return nil // it would name who is forgotten
			}
			return b.add(r.subject, r.sealed)
		})
		if err != nil {
			return 0, fmt.Errorf("the backup of %s failed: %w", part.stream, err)
		}
	}
	if err := e.backUpRoads(ctx, b); err != nil {
		return 0, err
	}
	return b.n - 1, b.end()
}

// readStored calls do for the last record of every subject there is, of those with
// such subjects, and returns when it has come to the end. Other writers go on
// meanwhile: of a subject that they change, do gets the later record too, or instead.
func (e *Engine) readStored(ctx context.Context, stream string, subjects []string, do func(record) error) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	f := newFeed(e, stream)
	f.filters, f.caughtUp = subjects, stop
	var failed error
	last := uint64(0)
	f.apply = func(r record) error {
		if reading.Err() != nil {
			return nil
		}
		if failed = do(r); failed != nil {
			stop()
		}
		last = r.seq
		return nil
	}
	if err := f.run(reading); err != nil {
		return err
	}
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	return e.readTail(ctx, stream, f.readFrom(), last+1, func(r record) error {
		for _, s := range subjects {
			if server.SubjectMatchesFilter(r.subject, s) {
				return do(r)
			}
		}
		return nil
	})
}

const (
	// tailRecords is how many records of a stream's end are asked for at once, and
	// tailBytes how many bytes. Nothing is stored while the engine answers. Where more
	// come meanwhile, twice as many are asked for the next time, up to tailMost times as
	// many.
	tailRecords = 250
	tailBytes   = 4 << 20
	tailMost    = 16
	// tailAgain is how long to wait where a server has nothing of what others have.
	tailAgain = 10 * time.Millisecond
)

// readTail calls do for the records of a stream that was made at a time, from a
// sequence on. It returns when there was a moment at which it had gone by the last
// record of every subject, however often they are replaced: what is replaced while it
// is read lies further on. It survives the engine's absence.
func (e *Engine) readTail(ctx context.Context, stream string, made time.Time, next uint64, do func(record) error) error {
	for times := 1; ; {
		records, end, err := e.readOn(ctx, stream, made, next, times)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, codec.ErrDamaged), errors.Is(err, codec.ErrNewer), errors.Is(err, ErrReplaced):
			e.fail(err)
			return err
		}
		for _, r := range records {
			if err := do(r); err != nil {
				return err
			}
			next = r.seq + 1
		}
		if end {
			return nil
		}
		rest := tailAgain
		if err != nil {
			rest, times = feedAgain, 1
		} else if len(records) > 0 {
			times = min(2*times, tailMost)
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

// readOn reads some of the records from a sequence on, up to so many times tailRecords;
// end is set if these are all that there were at one moment.
func (e *Engine) readOn(ctx context.Context, stream string, made time.Time, next uint64, times int) (records []record, end bool, err error) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return nil, false, err
	}
	// No server of which we have read so far knew more. One that knows less does not
	// have what others had replaced by then. If the last record there was has been
	// removed since, a heartbeat comes soon.
	info := s.CachedInfo()
	known := info.State.LastSeq
	if !info.Created.Equal(made) {
		return nil, false, fmt.Errorf("%w: %s", ErrReplaced, stream)
	}
	records, end, err = e.recordsFrom(ctx, stream, next, times)
	if n := len(records); n > 0 {
		next = records[n-1].seq + 1
	}
	return records, end && next > known, err
}

// recordsFrom asks any server for the records from a sequence on; all is set if that
// server had no others at one moment.
func (e *Engine) recordsFrom(ctx context.Context, stream string, next uint64, times int) (records []record, all bool, err error) {
	messages, end, err := e.askRecords(ctx, stream, struct {
		Seq   uint64 `json:"seq"`
		Batch int    `json:"batch"`
		Bytes int    `json:"max_bytes"`
	}{next, times * tailRecords, times * tailBytes})
	if errors.Is(err, errNoRecords) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		r := record{subject: m.Header.Get("Nats-Subject"), sealed: m.Data}
		if r.seq, err = strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64); err == nil {
			r.body, err = codec.Unseal(r.subject, m.Data)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: record %s: %w", stream, m.Header.Get("Nats-Sequence"), err)
		}
		records = append(records, r)
	}
	return records, len(messages) < times*tailRecords && end.Get("Nats-Num-Pending") == "0", nil
}

// CheckBackup reads a backup to its end and says what is in it. It returns an
// error if any byte of it is not what was written, or cannot be understood.
func CheckBackup(r io.Reader) (access.BackupInfo, error) {
	b, header, err := openBackup(r)
	if err != nil {
		return access.BackupInfo{}, err
	}
	parts := make(map[string]setsSeen)
	info := access.BackupInfo{Version: header.Version, Began: header.Began, Partitions: header.Partitions, Kinds: make(map[string]int)}
	for {
		r, err := b.next()
		if err == io.EOF {
			return info, nil
		}
		if err != nil {
			return info, err
		}
		kind, rest, _ := strings.Cut(r.subject, ".")
		if err := checkRecord(kind, rest, r.body, parts); err != nil {
			return info, err
		}
		info.Records++
		info.Kinds[kind]++
	}
}

// namesOf has the kinds of records, and how many names follow the kind in a subject.
var namesOf = map[string]struct{ least, most int }{
	codec.VIDKeysSubject: {0, 0}, "tombstone": {1, 1}, "source": {1, 1}, "operator": {1, 1}, "token": {1, 1},
	"sourceset": {2, 2}, "tokenset": {2, 2}, "tokenuse": {1, 2}, "state": {2, 2}, "road": {1, 1},
}

// nameLetters are the characters of the names in subjects.
const nameLetters = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// validNames reports whether what follows the kind in a subject can be stored under
// that subject again.
func validNames(kind, rest string) bool {
	var names []string
	if rest != "" {
		names = strings.Split(rest, ".")
	}
	for _, name := range names {
		if name == "" || len(name) > vehicle.MaxReportingID || strings.Trim(name, nameLetters) != "" {
			return false
		}
	}
	n := namesOf[kind]
	if len(names) < n.least || len(names) > n.most {
		return false
	}
	return kind != "state" || vehicle.CheckID(names[1]) == nil
}

// setsSeen counts the parts of a large set.
type setsSeen struct {
	mark string
	n    int
}

// checkRecord looks whether a record of a backup is understood, and whether what
// it refers to was there.
func checkRecord(kind, rest string, body []byte, parts map[string]setsSeen) (err error) {
	if _, ok := namesOf[kind]; !ok {
		return fmt.Errorf("%w (it holds records of a kind that is not known here)", errNewerBackup)
	}
	var granted grantedRecord
	owner := rest // what the record itself says of its name
	switch kind {
	case "state":
		_, err = codec.DecodeState(body)
	case "road":
		var tile road.Tile
		if tile, err = road.ParseTile(rest); err == nil {
			err = new(road.Map).Load(tile, body)
		}
	case "tombstone":
		var t access.Tombstone
		t, err = decodeTombstone(body)
		owner = t.Vehicle.String()
	case codec.VIDKeysSubject:
		_, err = decodeVIDKeys(body)
	case "token":
		var t tokenRecord
		t, err = decodeToken(body)
		granted, owner = t.Vehicles, t.ID
	case "source":
		var s sourceRecord
		s, err = decodeSource(body)
		granted, owner = s.Vehicles, s.Name
	case "operator":
		var o access.Operator
		o, err = decodeOperator(body)
		owner = o.Name
	case "tokenuse":
		err = json.Unmarshal(body, new(usageRecord))
	case "tokenset", "sourceset":
		var part setRecord
		if err = json.Unmarshal(body, &part); err == nil {
			owner, _, _ := strings.Cut(rest, ".")
			seen := parts[kind+owner]
			if seen.mark != part.Set {
				seen = setsSeen{mark: part.Set}
			}
			seen.n++
			parts[kind+owner] = seen
		}
	}
	if owner != rest || !validNames(kind, rest) {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	if granted.Sets > 0 && parts[kind+"set"+rest] != (setsSeen{granted.Set, granted.Sets}) {
		err = codec.ErrDamaged
	}
	switch {
	case errors.Is(err, codec.ErrNewer):
		return fmt.Errorf("%w (%w)", errNewerBackup, err)
	case err != nil:
		return errTornBackup
	}
	return nil
}
