package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// Every step of a restore can be repeated, so a service may have a part of the same backup.
// Credentials come last: without a source no telemetry is accepted, so no state can change before.

const (
	restoreTimeout = 6 * time.Hour
	batchRecords   = 500
	batchBytes     = 4 << 20
	statesBytes    = 512 << 10 // of a batch of states: its questions may be messages of NATS
	batchWriters   = 2         // few, because folding comes first
	storePause     = 100 * time.Millisecond
	compareReaders = 16
)

type restore struct {
	*Service
	info access.BackupInfo
	sets store.Sets // set records whose credential has not followed yet

	mu       sync.Mutex // guards the fields below
	progress func(done, total int)
	done     int
	counts   map[string]access.RestoreCount
	owners   map[int]uint64 // Reply.Owner by partition
}

func (r *restore) count(kind string, n access.RestoreCount, records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n != (access.RestoreCount{}) {
		r.counts[kind] = r.counts[kind].Plus(n)
	}
	r.done += records
	r.progress(r.done, r.info.Records)
}

func (s *Service) newRestore(progress func(done, total int)) *restore {
	return &restore{Service: s, sets: store.Sets{}, progress: progress, counts: make(map[string]access.RestoreCount),
		owners: make(map[int]uint64)}
}

// The error of Restore is [access.ErrNotEmpty] if the service has other credentials than an
// interrupted restore of the same backup leaves, and [access.ErrBusy] during another restore.
// progress is never called concurrently.
func (s *Service) Restore(
	ctx context.Context, from io.Reader, options access.RestoreOptions,
	audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
) (report access.RestoreReport, err error) {
	if !s.restoring.TryLock() {
		return report, access.ErrBusy
	}
	defer s.restoring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	file, err := s.spool(from)
	if err != nil {
		return report, err
	}
	defer file.Close()
	own, err := s.BackupKey(ctx)
	if err != nil {
		return report, err
	}
	r := s.newRestore(progress)
	if r.info, err = Check(file, own, options.Key); err != nil {
		return report, err
	}
	if !r.info.Authenticated && !options.Anybody {
		return report, errUnauthentic
	}
	if options.Compare {
		err = r.compare(ctx, file)
	} else if err = r.checkEmpty(file); err == nil {
		err = audited(r.info, func() error { return r.run(ctx, file) })
	}
	return access.RestoreReport{Backup: r.info, Kinds: r.counts}, err
}

// checkEmpty also refuses if the service has all credentials of the backup: its restore is
// complete, and cars may have reported since.
func (r *restore) checkEmpty(file io.ReadSeeker) error {
	own := len(r.tables.Tokens.All()) + len(r.tables.Sources.All()) + len(r.tables.Operators.All())
	same, all := 0, 0
	err := r.eachRecord(file, func(rec store.Record, kind string) error {
		if !isCredential(kind) {
			return nil
		}
		theirs, _, err := store.Sets{}.Credential(rec)
		if err != nil {
			return err
		}
		all++
		if g, ok := r.tables.Of(theirs.Kind).Get(theirs.Name); ok && g.Hash == theirs.Hash {
			same++
		}
		return nil
	})
	if err == nil && own > 0 && (same < own || same == all) {
		return access.ErrNotEmpty
	}
	return err
}

func isCredential(kind string) bool { return kind == "token" || kind == "source" || kind == "operator" }

// spool removes the file's name: the kernel deletes it when it is closed.
func (s *Service) spool(from io.Reader) (_ *os.File, err error) {
	file, err := os.CreateTemp(s.config.DataDir, "restore-")
	if err != nil {
		return nil, fmt.Errorf("cannot create a temporary file for the backup: %w", access.WithoutPath(err))
	}
	if err = os.Remove(file.Name()); err != nil {
		err = access.WithoutPath(err)
	} else if _, err = io.Copy(file, from); err != nil {
		err = fmt.Errorf("the backup was not received completely: %w", err)
	} else {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
	}
	return file, err
}

func (r *restore) run(ctx context.Context, file io.ReadSeeker) error {
	err := r.restoreData(ctx, file)
	r.ReadRoadsSoon() // other nodes load the roads after at most Patience.Roads
	if err == nil {
		err = r.storeStates(ctx)
	}
	if err != nil {
		return err
	}
	return r.eachRecord(file, func(rec store.Record, kind string) error {
		switch {
		case codec.IsSet(rec.Subject):
			// It is stored with its credential, which follows.
			err := r.sets.Apply(rec)
			r.count(kind, access.RestoreCount{}, 1)
			return err
		case isCredential(kind):
			return r.restoreCredential(ctx, rec, kind)
		}
		return nil
	})
}

func (r *restore) counted(kind string, restored bool, err error) error {
	if err != nil {
		return fmt.Errorf("cannot restore a record of kind %s: %w", kind, err)
	}
	n := access.RestoreCount{Kept: 1}
	if restored {
		n = access.RestoreCount{Restored: 1}
	}
	r.count(kind, n, 1)
	return nil
}

func (r *restore) restoreData(ctx context.Context, file io.ReadSeeker) error {
	storing, ctx := errgroup.WithContext(ctx)
	storing.SetLimit(batchWriters)
	batches, sizes := make(map[string][]store.Record), make(map[string]int)
	flush := func(kind string) error {
		batch := batches[kind]
		batches[kind], sizes[kind] = nil, 0
		storing.Go(func() error { return r.restoreBatch(ctx, kind, batch) })
		return context.Cause(ctx)
	}
	err := r.eachRecord(file, func(rec store.Record, kind string) error {
		switch {
		case strings.HasPrefix(kind, "tombstone"):
			added, err := r.MergeTombstone(ctx, rec, false)
			return r.counted(kind, added, refuseUnfit(err))
		case inBatches[kind] == "":
			return nil
		}
		batches[kind] = append(batches[kind], rec)
		most := batchBytes
		if kind == "state" {
			most = statesBytes
		}
		if sizes[kind] += len(rec.Sealed); len(batches[kind]) < batchRecords && sizes[kind] < most {
			return nil
		}
		return flush(kind)
	})
	for kind := range batches {
		err = cmp.Or(err, flush(kind))
	}
	return cmp.Or(err, storing.Wait())
}

var inBatches = map[string]string{"state": codec.States, "tokenuse": codec.Tokens, "road": codec.Roads}

func (r *restore) restoreStates(ctx context.Context, batch []store.Record) error {
	var n access.RestoreCount
	parts := make(map[int][]byte)
	for _, rec := range batch {
		id, _ := codec.VehicleOfState(rec.Subject)
		if r.forgotten(id) {
			n.Forgotten++
			continue
		}
		p := codec.PartitionOf(id, r.engine.Partitions())
		parts[p] = store.AppendEntry(parts[p], store.Entry{Vehicle: id, State: rec.Body})
	}
	for p, entries := range parts {
		reply, err := r.AskOwner(ctx, p, &store.Question{Kind: store.AskRestore, Entries: entries})
		if err == nil {
			err = r.sameOwner(p, reply)
		}
		if err != nil {
			return err
		}
		n.Restored, n.Kept = n.Restored+reply.Restored, n.Kept+reply.Kept
	}
	r.count("state", n, len(batch))
	return nil
}

// sameOwner fails after a change of owner: the new one may not have all restored states.
func (r *restore) sameOwner(p int, reply store.Reply) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, ok := r.owners[p]; ok && was != reply.Owner {
		return errors.New("a partition moved to another node during the restore: run it again")
	}
	r.owners[p] = reply.Owner
	return nil
}

// The owners also remove older checkpoints, which would be read if the new one were damaged.
func (r *restore) storeStates(ctx context.Context) error {
	replies, err := r.AskOwners(ctx, store.AskErase)
	for p, reply := range replies {
		err = cmp.Or(err, r.sameOwner(p, reply))
	}
	return err
}

func (r *restore) eachRecord(file io.ReadSeeker, do func(rec store.Record, kind string) error) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	b, _, err := open(file)
	if err != nil {
		return err
	}
	return b.each(do)
}

// restoreCredential keeps a credential that an interrupted restore has restored.
func (r *restore) restoreCredential(ctx context.Context, rec store.Record, kind string) error {
	theirs, sets, err := r.credential(rec)
	g, ok := r.tables.Of(theirs.Kind).Get(theirs.Name)
	if kept := ok && g.Hash == theirs.Hash; kept || err != nil {
		return r.counted(kind, false, err)
	}
	if err = r.Create(ctx, theirs); err == nil {
		r.count(kind+"set", access.RestoreCount{Restored: sets}, 0)
	}
	return r.counted(kind, true, err)
}

func (r *restore) credential(rec store.Record) (c access.Credential, sets int, err error) {
	if c, sets, err = r.sets.Credential(rec); err == nil {
		c.Vehicles, _ = r.engine.Forgotten().Without(c.Vehicles)
	}
	return c, sets, err
}

// The service is empty, so a record replaces only itself: an interrupted restore has stored it, or
// the file has it twice, because it changed during the backup.
func (r *restore) restoreBatch(ctx context.Context, kind string, batch []store.Record) error {
	if kind == "state" {
		return r.restoreStates(ctx, batch)
	}
	writes := make([]store.Write, len(batch))
	for i, rec := range batch {
		writes[i] = store.Write{Subject: rec.Subject, Record: rec.Sealed}
	}
	for until := time.Now().Add(r.config.Patience.Store); ; {
		_, err := r.engine.Store(ctx, inBatches[kind], writes)
		if err == nil {
			r.count(kind, access.RestoreCount{Restored: len(batch)}, len(batch))
		}
		if err == nil || time.Now().After(until) || periodic.Pause(ctx, storePause) != nil {
			return err
		}
	}
}

// A vehicle that was allowed again counts as forgotten if the backup was begun before that.
func (r *restore) forgotten(id vehicle.ID) bool {
	t, ok := r.engine.Forgotten().Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Since))
}

func (r *restore) compare(ctx context.Context, file io.ReadSeeker) error {
	looking, ctx := errgroup.WithContext(ctx)
	looking.SetLimit(compareReaders)
	err := r.eachRecord(file, func(rec store.Record, kind string) error {
		switch {
		case codec.IsSet(rec.Subject): // compared with its credential, which follows
			r.count(kind, access.RestoreCount{}, 1)
			return r.sets.Apply(rec)
		case isCredential(kind):
			n, err := r.compareCredential(rec)
			r.count(kind, n, 1)
			return err
		}
		looking.Go(func() error {
			n, err := r.compareOne(ctx, rec, kind)
			r.count(kind, n, 1)
			return err
		})
		return context.Cause(ctx)
	})
	return cmp.Or(err, looking.Wait())
}

func (r *restore) compareCredential(rec store.Record) (n access.RestoreCount, err error) {
	theirs, _, err := r.credential(rec)
	if err != nil {
		return n, err
	}
	ours, ok := r.tables.Of(theirs.Kind).Get(theirs.Name)
	return compared(ok, ok && ours.Hash == theirs.Hash && ours.Ended.Equal(theirs.Ended) &&
		ours.Vehicles.All() == theirs.Vehicles.All() &&
		slices.Equal(ours.Vehicles.Sorted(), theirs.Vehicles.Sorted())), nil
}

func compared(found, equal bool) access.RestoreCount {
	switch {
	case !found:
		return access.RestoreCount{Missing: 1}
	case equal:
		return access.RestoreCount{Equal: 1}
	}
	return access.RestoreCount{Different: 1}
}

func (r *restore) compareOne(ctx context.Context, rec store.Record, kind string) (n access.RestoreCount, err error) {
	if kind == "state" {
		return r.compareState(ctx, rec)
	}
	if strings.HasPrefix(kind, "tombstone") { // the bytes differ after a restore
		added, err := r.MergeTombstone(ctx, rec, true)
		return compared(!added, true), refuseUnfit(err)
	}
	is, err := r.engine.Last(ctx, cmp.Or(inBatches[kind], codec.StreamOf(rec.Subject)), rec.Subject)
	if err != nil {
		return n, err
	}
	return compared(is.Seq != 0, bytes.Equal(is.Body, rec.Body)), nil
}

func (r *restore) compareState(ctx context.Context, rec store.Record) (n access.RestoreCount, err error) {
	id, _ := codec.VehicleOfState(rec.Subject)
	theirs, err := codec.DecodeState(rec.Body)
	if err != nil {
		return n, err
	}
	if r.forgotten(id) {
		return access.RestoreCount{Forgotten: 1}, nil
	}
	ours, ok, err := store.State(ctx, r.engine, id)
	switch {
	case err != nil:
		return n, err
	case ok && ours.Time > theirs.Time:
		return access.RestoreCount{Newer: 1}, nil
	case ok && ours.Time < theirs.Time:
		return access.RestoreCount{Older: 1}, nil
	}
	return compared(ok, ours == theirs), nil
}
