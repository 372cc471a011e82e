package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/store/engine"
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
		return nil, d.damaged("the store cannot be opened: " + cause(err))
	}
	defer func() { _ = db.Close() }()
	e := &Engine{
		config: Config{Config: store.Config{}.WithDefaults()}, dir: d, db: db, hasher: access.NewHasher(d.Key),
		cut: context.Background(), Failure: engine.NewFailure(),
	}
	last := make(map[int]uint64)
	telemetry := func(is entry) error {
		p := int(is.key[1])<<8 | int(is.key[2])
		_, before, err := decodeGroup(p, is.key, is.value, nil)
		if was, ok := last[p]; err == nil && ok && before != was {
			err = codec.ErrDamaged
		}
		last[p] = sequenceOf(is.key)
		return err
	}
	record := func(is entry) error {
		_, err := decodeRecord(is.value)
		return err
	}
	bad := 0
	for _, name := range slices.Concat([]string{codec.Telemetry}, slices.Sorted(maps.Keys(letters))) {
		letter, decode := letters[name], record
		if name == codec.Telemetry {
			letter, decode = letterTelemetry, telemetry
		}
		is, err := e.checkSpan(ctx, letter, decode)
		if _, err := e.lastSequence(letter); err != nil && is.Unreadable == "" && name != codec.Telemetry {
			is.Unreadable = "the last sequence: " + cause(err)
		}
		is.Stream = name
		found = append(found, is)
		if err != nil {
			return found, err
		}
		if is.Damaged > 0 || is.Unreadable != "" {
			bad++
		}
	}
	if bad > 0 {
		return found, d.damaged(fmt.Sprintf("in %d of %d streams", bad, len(found)))
	}
	return found, e.loadEnds()
}

func (e *Engine) checkSpan(ctx context.Context, letter byte, decode func(entry) error) (found Checked, err error) {
	for is, err := range e.walk(ctx, span(letter), forwards) {
		switch {
		case ctx.Err() != nil:
			return found, ctx.Err()
		case err != nil:
			found.Unreadable = "the rest: " + cause(err)
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
