package store

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

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/backupfile"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// Every step can be repeated, so a service may have a part of the same backup. The credentials come
// last: without a source no telemetry is accepted, so no state can change before.

const (
	restoreTimeout = 6 * time.Hour
	batchRecords   = 500
	batchBytes     = 4 << 20
	batchWriters   = 2 // folding needs most of a node's
)

type restore struct {
	k    *RecordStore
	info access.BackupInfo
	sets sets // set records whose credential has not followed yet

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
	for range records {
		r.done++
		r.progress(r.done, r.info.Records)
	}
}

// Restore first checks the whole backup; [RecordStore.BadBackup] is true if that fails. The error
// is [access.ErrNotEmpty] if the service has other credentials than an interrupted restore of the
// same backup leaves, and [access.ErrBusy] during another restore. audited must record the restore
// in the audit and call merge, or return an error. progress is never called concurrently. With
// options.Compare, nothing is changed, and the differences are counted.
func (k *RecordStore) Restore(
	ctx context.Context, from io.Reader, options access.RestoreOptions,
	audited func(info access.BackupInfo, merge func() error) error, progress func(done, total int),
) (report access.RestoreReport, err error) {
	if !k.restoring.TryLock() {
		return report, access.ErrBusy
	}
	defer k.restoring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	file, err := k.spool(from)
	if err != nil {
		return report, err
	}
	defer file.Close()
	r := &restore{k: k, sets: sets{}, progress: progress, counts: make(map[string]access.RestoreCount),
		owners: make(map[int]uint64)}
	own, err := k.BackupKey(ctx)
	if err != nil {
		return report, err
	}
	var vidKeys [][]byte
	if r.info, vidKeys, err = checkBackup(file, own, options.Key); err != nil {
		return report, err
	}
	if !r.info.Authenticated && !options.Anybody {
		return report, backupfile.ErrUnauthentic
	}
	if options.Compare {
		err = r.compare(ctx, file)
	} else if err = cmp.Or(k.checkKeyLimit(ctx, vidKeys), r.checkEmpty(file)); err == nil {
		err = audited(r.info, func() error { return r.run(ctx, file) })
	}
	return access.RestoreReport{Backup: r.info, Kinds: r.counts}, err
}

// If the service has all credentials of the backup, a restore is complete, and cars may have
// reported since.
func (r *restore) checkEmpty(file io.ReadSeeker) error {
	t := r.k.tables
	own := len(t.Tokens.All()) + len(t.Sources.All()) + len(t.Operators.All())
	same, all := 0, 0
	err := r.eachRecord(file, func(rec Record, kind string) error {
		if !isCredential(kind) {
			return nil
		}
		theirs, _, err := decodeCredential(rec)
		if err != nil {
			return err
		}
		all++
		if g, ok := t.Of(theirs.Kind).Get(theirs.Name); ok && g.Hash == theirs.Hash {
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

// BadBackup reports whether Restore refused a backup and changed nothing.
func (*RecordStore) BadBackup(err error) bool {
	refusals := []error{
		backupfile.ErrForeign, backupfile.ErrOlder, backupfile.ErrNewer, backupfile.ErrTorn,
		backupfile.ErrUnfit, backupfile.ErrUnauthentic,
	}
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}

// The kernel deletes a file without a name when it is closed.
func (k *RecordStore) spool(from io.Reader) (_ *os.File, err error) {
	file, err := os.CreateTemp(k.config.DataDir, "restore-")
	if err != nil {
		return nil, fmt.Errorf("cannot create a temporary file for the backup: %w", access.WithoutPath(err))
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, access.WithoutPath(err)
	}
	if _, err := io.Copy(file, from); err != nil {
		return nil, fmt.Errorf("the backup was not received completely: %w", err)
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

func (r *restore) run(ctx context.Context, file io.ReadSeeker) error {
	// No data of a forgotten vehicle may be restored.
	err := r.eachRecord(file, func(rec Record, kind string) (err error) {
		restored := false
		switch kind {
		case codec.VIDKeysSubject:
			restored, err = r.restoreKeys(ctx, rec)
		case "tombstone":
			restored, err = r.restoreTombstone(ctx, rec)
		default:
			return nil
		}
		return r.counted(kind, restored, err)
	})
	if err != nil {
		return err
	}
	err = r.runBatches(ctx, file)
	r.k.readRoadsSoon() // other nodes load the roads after at most Patience.Roads
	if err == nil {
		err = r.storeStates(ctx)
	}
	if err != nil {
		return err
	}
	return r.eachRecord(file, func(rec Record, kind string) error {
		switch {
		case codec.IsSet(rec.Subject):
			// It is stored with its credential, which follows.
			err := r.sets.apply(rec)
			r.count(kind, access.RestoreCount{}, 1)
			return err
		case isCredential(kind):
			restored, sets, err := r.restoreCredential(ctx, rec)
			if restored && err == nil {
				r.count(kind+"set", access.RestoreCount{Restored: sets}, 0)
			}
			return r.counted(kind, restored, err)
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

func (r *restore) runBatches(ctx context.Context, file io.ReadSeeker) error {
	ctx, storing := newWorkers(ctx, batchWriters)
	batches, sizes := make(map[string][]Record), make(map[string]int)
	flush := func(kind string) error {
		batch := batches[kind]
		batches[kind], sizes[kind] = nil, 0
		return storing.start(func() error { return r.restoreBatch(ctx, kind, batch) })
	}
	err := r.eachRecord(file, func(rec Record, kind string) error {
		if inBatches[kind] == "" {
			return nil
		}
		rec.Sealed = bytes.Clone(rec.Sealed)
		rec.Body = bodyOf(Write{Record: rec.Sealed})
		batches[kind] = append(batches[kind], rec)
		if sizes[kind] += len(rec.Sealed); len(batches[kind]) < batchRecords && sizes[kind] < batchBytes {
			return nil
		}
		return flush(kind)
	})
	for kind := range batches {
		err = cmp.Or(err, flush(kind))
	}
	return cmp.Or(err, storing.wait())
}

var inBatches = map[string]string{"state": codec.States, "tokenuse": codec.Tokens, "road": codec.Roads}

const askedBytes = 128 << 10 // perhaps in a message of NATS

func (r *restore) restoreStates(ctx context.Context, batch []Record) error {
	var n access.RestoreCount
	parts := make(map[int][]byte)
	send := func(p int) error {
		reply, err := r.k.ask(ctx, p, &Question{Kind: AskRestore, Entries: parts[p]})
		if err == nil {
			err = r.sameOwner(p, reply)
		}
		parts[p] = parts[p][:0]
		n.Restored, n.Kept = n.Restored+reply.Restored, n.Kept+reply.Kept
		return err
	}
	today := uint16(r.k.now().Unix() / (24 * 3600))
	for _, rec := range batch {
		id, _ := codec.VehicleOfState(rec.Subject)
		s, err := codec.DecodeState(rec.Body)
		if err != nil {
			return err
		}
		if r.forgotten(id, s) {
			n.Forgotten++
			continue
		}
		p := codec.PartitionOf(id, r.k.engine.Partitions())
		if parts[p] = AppendEntry(parts[p], Entry{Vehicle: id, Day: today, State: rec.Body}); len(parts[p]) < askedBytes {
			continue
		}
		if err := send(p); err != nil {
			return err
		}
	}
	for p := range parts {
		if err := send(p); err != nil {
			return err
		}
	}
	r.count("state", n, len(batch))
	return nil
}

// If the partition had another owner before, this one may not have all states.
func (r *restore) sameOwner(p int, reply Reply) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, ok := r.owners[p]; ok && was != reply.Owner {
		return errors.New("a partition moved to another node during the restore: run it again")
	}
	r.owners[p] = reply.Owner
	return nil
}

// The owners also remove the checkpoints before, which would be read if this one were damaged.
func (r *restore) storeStates(ctx context.Context) error {
	replies, err := r.k.askAll(ctx, AskErase)
	for p, reply := range replies {
		err = cmp.Or(err, r.sameOwner(p, reply))
	}
	return err
}

func (r *restore) eachRecord(file io.ReadSeeker, do func(rec Record, kind string) error) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	b, _, err := backupfile.Open(file)
	for err == nil {
		r, nextErr := b.Next()
		if err = nextErr; err != nil {
			break
		}
		kind, _, _ := strings.Cut(r.Subject, ".")
		err = do(Record{Subject: r.Subject, Body: r.Body, Sealed: r.Sealed}, kind)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// A hash cannot be converted to another key, so each vid is looked up with every key.
func (r *restore) restoreKeys(ctx context.Context, rec Record) (restored bool, err error) {
	theirs, err := decodeVIDKeys(rec.Body)
	if err != nil {
		return false, err
	}
	_, err = r.k.change(ctx, codec.Sources, codec.VIDKeysSubject, func(is Record) ([]Write, error) {
		ours, err := decodeVIDKeys(is.Body)
		if err != nil {
			return nil, err
		}
		n := len(ours.Keys)
		ours.Keys = withKeys(ours.Keys, theirs.Keys)
		switch restored = len(ours.Keys) > n; {
		case !restored:
			return nil, nil
		case len(ours.Keys) > maxVIDKeys:
			return nil, errVIDKeys
		}
		return AppendJSON(nil, codec.VIDKeysSubject, ours)
	})
	return restored, err
}

func (k *RecordStore) checkKeyLimit(ctx context.Context, theirs [][]byte) error {
	if len(theirs) == 0 {
		return nil
	}
	is, err := k.engine.Last(ctx, codec.Sources, codec.VIDKeysSubject)
	if err != nil {
		return err
	}
	ours, err := decodeVIDKeys(is.Body)
	if err != nil {
		return err
	}
	if len(withKeys(ours.Keys, theirs)) > maxVIDKeys {
		return fmt.Errorf("%w (%s: %w)", backupfile.ErrUnfit, codec.VIDKeysSubject, errVIDKeys)
	}
	return nil
}

func (r *restore) restoreTombstone(ctx context.Context, rec Record) (restored bool, err error) {
	t, err := decodeTombstone(rec.Subject, rec.Body)
	if err != nil || !t.InForce() {
		return false, err
	}
	return r.k.bury(ctx, t.Vehicle, t.Forgotten)
}

// restoreCredential keeps a credential that an interrupted restore has restored. sets is the number
// of set records.
func (r *restore) restoreCredential(ctx context.Context, rec Record) (restored bool, sets int, err error) {
	theirs, granted, err := decodeCredential(rec)
	if err != nil {
		return false, 0, err
	}
	if g, ok := r.k.tables.Of(theirs.Kind).Get(theirs.Name); ok && g.Hash == theirs.Hash {
		return false, granted.Sets, nil
	}
	r.sets.record(rec.Subject, granted, func(v access.Vehicles) { theirs.Vehicles, _ = r.k.withoutForgotten(v) })
	return true, granted.Sets, r.k.Create(ctx, theirs)
}

// If the batch is not stored, perhaps because the service has one of the records already, each is
// stored by itself.
func (r *restore) restoreBatch(ctx context.Context, kind string, batch []Record) error {
	if kind == "state" {
		return r.restoreStates(ctx, batch)
	}
	var n access.RestoreCount
	var writes []Write
	seen := make(map[string]bool)
	twice := false // a backup may contain a record twice: as it was before a change, and after
	for _, rec := range batch {
		w := Write{rec.Subject, rec.Sealed, 0, true}
		twice = twice || seen[w.Subject]
		seen[w.Subject] = true
		writes = append(writes, w)
	}
	if !twice {
		if _, err := r.k.engine.Store(ctx, inBatches[kind], writes); err == nil {
			n.Restored, writes = len(writes), nil
		}
	}
	for _, w := range writes {
		restored, err := r.restoreOne(ctx, inBatches[kind], w)
		if err != nil {
			return err
		}
		if restored {
			n.Restored++
		} else {
			n.Kept++
		}
	}
	r.count(kind, n, len(batch))
	return nil
}

func (r *restore) restoreOne(ctx context.Context, stream string, w Write) (restored bool, err error) {
	_, err = Change(ctx, r.k.engine, r.k.config.Patience.Store, stream, w.Subject, func(is Record) ([]Write, error) {
		if restored = is.Seq == 0; !restored {
			return nil, nil
		}
		return []Write{w}, nil
	})
	return restored, err
}

// A vehicle that was allowed again counts as forgotten if the backup was begun before that, or if
// the state s is older than the forget.
func (r *restore) forgotten(id vehicle.ID, s vehicle.State) bool {
	t, ok := r.k.forgotten.Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Lifted) || !s.Time.Time().After(t.Forgotten))
}

const compareReaders = 16

func (r *restore) compare(ctx context.Context, file io.ReadSeeker) error {
	ctx, looking := newWorkers(ctx, compareReaders)
	err := r.eachRecord(file, func(rec Record, kind string) error {
		switch {
		case codec.IsSet(rec.Subject): // compared with its credential, which follows
			r.count(kind, access.RestoreCount{}, 1)
			return r.sets.apply(rec)
		case isCredential(kind):
			n, err := r.compareCredential(rec)
			r.count(kind, n, 1)
			return err
		}
		rec.Body = bytes.Clone(rec.Body)
		return looking.start(func() error {
			n, err := r.compareOne(ctx, rec, kind)
			r.count(kind, n, 1)
			return err
		})
	})
	return cmp.Or(err, looking.wait())
}

func (r *restore) compareCredential(rec Record) (n access.RestoreCount, err error) {
	theirs, granted, err := decodeCredential(rec)
	if err != nil {
		return n, err
	}
	r.sets.record(rec.Subject, granted, func(v access.Vehicles) { theirs.Vehicles, _ = r.k.withoutForgotten(v) })
	ours, ok := r.k.tables.Of(theirs.Kind).Get(theirs.Name)
	switch {
	case !ok:
		return access.RestoreCount{Missing: 1}, nil
	case ours.Hash == theirs.Hash && ours.Ended.Equal(theirs.Ended) && ours.Vehicles.All() == theirs.Vehicles.All() &&
		slices.Equal(slices.Collect(ours.Vehicles.Sorted()), slices.Collect(theirs.Vehicles.Sorted())):
		return access.RestoreCount{Equal: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}

func (r *restore) compareOne(ctx context.Context, rec Record, kind string) (n access.RestoreCount, err error) {
	if kind == "state" {
		return r.compareState(ctx, rec)
	}
	is, err := r.k.engine.Last(ctx, cmp.Or(inBatches[kind], streamOf(rec.Subject)), rec.Subject)
	switch {
	case err != nil:
		return n, err
	case is.Seq == 0:
		return access.RestoreCount{Missing: 1}, nil
	case bytes.Equal(is.Body, rec.Body):
		return access.RestoreCount{Equal: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}

func (r *restore) compareState(ctx context.Context, rec Record) (n access.RestoreCount, err error) {
	id, _ := codec.VehicleOfState(rec.Subject)
	theirs, err := codec.DecodeState(rec.Body)
	if err != nil {
		return n, err
	}
	if r.forgotten(id, theirs) {
		return access.RestoreCount{Forgotten: 1}, nil
	}
	ours, ok, err := State(ctx, r.k.engine, id)
	switch {
	case err != nil:
		return n, err
	case !ok:
		return access.RestoreCount{Missing: 1}, nil
	case ours == theirs:
		return access.RestoreCount{Equal: 1}, nil
	case ours.Time > theirs.Time:
		return access.RestoreCount{Newer: 1}, nil
	case ours.Time < theirs.Time:
		return access.RestoreCount{Older: 1}, nil
	}
	return access.RestoreCount{Different: 1}, nil
}
