package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

type Checked struct {
	Stream string `json:"stream"`
	Good   int    `json:"good"`
	// Damaged counts records that could not be decoded, and gaps in telemetry.
	Damaged    int    `json:"damaged"`
	Unreadable string `json:"unreadable,omitempty"`
}

// Check takes the lock of a stopped service and writes nothing. found is valid with an error, too.
func Check(ctx context.Context, fsys vfs.FS, path string) (found []Checked, err error) {
	fsys = cmp.Or[vfs.FS](fsys, vfs.Default)
	if id, err := (&dataDir{fs: fsys, path: path}).identify(); err != nil {
		return nil, err
	} else if id.Format == 0 {
		return nil, fmt.Errorf("%s is not a data directory or cannot be read: no %s", path, identityFile)
	}
	defer func() {
		if is, ok := errors.AsType[damagedError](err); ok {
			err = fmt.Errorf("the data directory %s is damaged (%s): make a backup, if the service starts, and restore that "+
				"or an older one into a new --data-dir", is.path, is.what)
		}
	}()
	d, err := openDataDir(fsys, path, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.close() }() // nothing was written
	db, err := pebble.Open(d.name(storeDir), &pebble.Options{
		FS: fsys, ReadOnly: true, ErrorIfNotExists: true, FormatMajorVersion: storeFormat, Logger: silent{},
	})
	if err != nil {
		return nil, d.damaged("the store cannot be opened: " + access.OneLine(err))
	}
	defer func() { _ = db.Close() }()
	last, ends := make(map[int]uint64), make(map[string]uint64) // last: of telemetry
	end := func(p int, seq uint64) {
		for _, name := range []string{telemetryEndName(p), codec.Telemetry} {
			ends[name] = max(ends[name], seq)
		}
	}
	telemetry := func(is entry) error {
		p := int(is.key[1])<<8 | int(is.key[2])
		_, before, err := decodeGroup(p, is.key, is.value, nil)
		if was, ok := last[p]; err == nil && ok && before != was {
			err = codec.ErrDamaged
		}
		last[p] = sequenceOf(is.key)
		end(p, last[p])
		return err
	}
	record := func(is entry) error {
		r, err := decodeRecord(is.value)
		if p, ok := codec.PartitionOfCursor(r.Subject); ok && err == nil {
			var c cursorRecord
			if err = json.Unmarshal(r.Body, &c); err == nil && len(c.Checkpoints) > 0 {
				ends[cursorName(p)] = c.Checkpoints[len(c.Checkpoints)-1].Seq
				end(p, ends[cursorName(p)])
			}
		}
		return err
	}
	check := func(name string, letter byte, decode func(entry) error) error {
		is, err := checkSpan(ctx, db, letter, decode)
		is.Stream = name
		found = append(found, is)
		return err
	}
	if err := check(codec.Telemetry, letterTelemetry, telemetry); err != nil {
		return found, err
	}
	for _, name := range slices.Sorted(maps.Keys(letters)) {
		if err := check(name, letters[name], record); err != nil {
			return found, err
		}
		is := &found[len(found)-1]
		if ends[name], err = number(db, endKey(letters[name])); err != nil && is.Unreadable == "" {
			is.Unreadable = "the last sequence: " + access.OneLine(err)
		}
	}
	bad := 0
	for _, is := range found {
		if is.Damaged > 0 || is.Unreadable != "" {
			bad++
		}
	}
	if bad > 0 {
		return found, d.damaged(fmt.Sprintf("in %d of %d streams", bad, len(found)))
	}
	return found, d.compareEnds(ends)
}

func checkSpan(ctx context.Context, db *pebble.DB, letter byte, decode func(entry) error) (found Checked, err error) {
	for is, err := range entries(ctx, db, span(letter), forwards) {
		switch {
		case ctx.Err() != nil:
			return found, ctx.Err()
		case err != nil:
			found.Unreadable = access.OneLine(err)
			return found, nil
		}
		switch err := decode(is); {
		case err == nil:
			found.Good++
		case errors.Is(err, codec.ErrDamaged):
			found.Damaged++
		default:
			return found, err
		}
	}
	return found, nil
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}
