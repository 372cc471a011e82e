// Package backup copies what a running service keeps to a file, and verifies, compares and restores
// such a file. It never copies telemetry or the backup key.
package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

type Service struct {
	*store.RecordStore
	engine    store.Engine
	config    store.Config
	tables    *access.Tables
	restoring sync.Mutex // held during a restore
}

// e, c and t are the ones of k.
func New(k *store.RecordStore, e store.Engine, c store.Config, t *access.Tables) *Service {
	return &Service{RecordStore: k, engine: e, config: c.WithDefaults(), tables: t}
}

// Tombstones come first, so that a reader knows all forgotten vehicles before it reads a state.
// States and roads follow. Each record is copied at some moment while the backup runs.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*.*"}},
}

func (s *Service) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	key, err := s.BackupKey(ctx)
	if err != nil {
		return 0, err
	}
	b, err := newWriter(w, header{
		Version: version, Began: s.config.Now().UTC().Truncate(time.Millisecond), Partitions: s.engine.Partitions(),
	}, key)
	if err != nil {
		return 0, err
	}
	for _, part := range backedUp {
		err := s.engine.Scan(ctx, part.stream, part.subjects, func(r store.Record) error {
			if store.IsEmptied(r) {
				return nil
			}
			return b.add(r)
		})
		if err != nil {
			return 0, fmt.Errorf("cannot back up %s: %w", part.stream, err)
		}
	}
	for p := range s.engine.Partitions() {
		if err := s.backUpStates(ctx, b, p); err != nil {
			return 0, fmt.Errorf("cannot back up the states: %w", err)
		}
	}
	if err := s.EachRoad(ctx, b.add); err != nil {
		return 0, fmt.Errorf("cannot back up %s: %w", codec.Roads, err)
	}
	return b.n - 1, b.end()
}

// If another process becomes the owner, backUpStates begins again, so a backup may have several
// states of a vehicle.
func (s *Service) backUpStates(ctx context.Context, b *writer, p int) error {
	owner := uint64(0)
	for next := 0; ; {
		r, err := s.AskOwner(ctx, p, &store.Question{Kind: store.AskStates, From: next})
		if err != nil {
			return err
		}
		if next > 0 && r.Owner != owner {
			next = 0
			continue
		}
		err = store.DecodeEntries(r.Entries, func(e store.Entry) error {
			return b.add(sealed(codec.StateSubject(p, e.Vehicle), e.State))
		})
		if next, owner = r.Next, r.Owner; err != nil || next == 0 {
			return err
		}
	}
}

func (s *Service) BackupKey(ctx context.Context) (string, error) {
	var r struct {
		Key string `json:"key"`
	}
	fresh, _ := access.NewSecret(access.BackupKind)
	const subject = codec.BackupKeySubject
	change := func(is store.Record) ([]store.Write, error) {
		if is.Seq == 0 {
			r.Key = fresh
			return store.AppendJSON(nil, subject, r)
		}
		if json.Unmarshal(is.Body, &r) != nil || access.Check(access.BackupKind, []byte(r.Key)) != nil {
			return nil, fmt.Errorf("%w: %s: not a valid backup key", codec.ErrDamaged, subject)
		}
		return nil, nil
	}
	_, err := store.Change(ctx, s.engine, s.config.Patience.Store, codec.Sources, subject, change)
	if err != nil {
		return "", fmt.Errorf("cannot load the backup key: %w", err)
	}
	return r.Key, nil
}

const maxVersion = 100

// Check describes a backup, which is authenticated if it was made with one of the keys.
// An error that the contents cause is an [access.BadBackup].
func Check(r io.Reader, keys ...string) (info access.BackupInfo, err error) {
	records := store.Sets{}
	b, h, err := open(r)
	if err != nil {
		return info, err
	}
	if len(h.Version) > maxVersion || access.Printable(h.Version) != h.Version || h.Partitions < 0 {
		return info, fmt.Errorf("%w (header: the version is missing or invalid)", errUnfit)
	}
	info = access.BackupInfo{Version: h.Version, Began: h.Began, Partitions: h.Partitions, Kinds: make(map[string]int)}
	err = b.each(func(r store.Record, kind string) error {
		info.Records++
		info.Kinds[kind]++
		return checkRecord(kind, r, records)
	})
	info.Authenticated = slices.ContainsFunc(keys, b.authentic)
	return info, err
}

// Names in subjects need no escaping in NATS.
var validSubject = regexp.MustCompile(`^(` + codec.VIDKeysSubject + `|(tombstone|source|operator|token|road)\.[-\w]+|` +
	`(sourceset|tokenset|tokenuse|state)\.[-\w]+\.[-\w]+)$`)

func checkRecord(kind string, r store.Record, records store.Sets) (err error) {
	var bad error
	switch kind {
	case "state":
		id, _ := codec.VehicleOfState(r.Subject)
		_, bad = vehicle.ParseReportingID(string(id))
		_, err = codec.DecodeState(r.Body)
	case "road":
		var tile road.Tile
		if tile, bad = road.ParseTile(strings.TrimPrefix(r.Subject, codec.RoadPrefix)); bad == nil {
			bad = new(road.Map).Load(tile, r.Body)
		}
	case codec.VIDKeysSubject, "tombstone", "source", "sourceset", "operator", "token", "tokenset", "tokenuse":
		err = records.Check(r)
	default:
		return fmt.Errorf("%w (unknown kind of record)", errNewer)
	}
	if bad != nil || !validSubject.MatchString(r.Subject) || len(r.Subject) > 2*vehicle.MaxReportingID {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	return refusal(err)
}

// refusal makes an error of a record an [access.BadBackup], and leaves any other as it is.
func refusal(err error) error {
	_, unfit := errors.AsType[store.Unfit](err)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return fmt.Errorf("%w (%w)", errNewer, err)
	case errors.Is(err, codec.ErrDamaged) && !unfit:
		return errTorn
	}
	return refuseUnfit(err)
}

func refuseUnfit(err error) error {
	if u, ok := errors.AsType[store.Unfit](err); ok {
		return fmt.Errorf("%w (%s: %w)", errUnfit, u.Kind, u.Err)
	}
	return err
}
