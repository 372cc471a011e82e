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

// A restore merges a backup into the stored records. DESIGN.md says which side takes precedence.
// Every step is idempotent, so an interrupted restore can simply be repeated.

const (
	// restoreTimeout limits the time of one restore, which may have millions of states.
	restoreTimeout = 6 * time.Hour
	// A batch of a restore is complete when it has batchRecords records or at least batchBytes
	// bytes. At most batchWriters are stored at a time, because folding needs most of a node's.
	batchRecords = 500
	batchBytes   = 4 << 20
	batchWriters = 2
	// batchReaders is the maximum number of stored states that a restore looks up concurrently for
	// one batch.
	batchReaders = 16
)

// restore is a restore in progress.
type restore struct {
	k    *RecordStore
	info access.BackupInfo
	sets sets // set records whose credential has not followed yet

	mu     sync.Mutex // guards the fields below
	done   int
	counts map[string]access.RestoreCount
}

// count adds n to the counts of a kind of record. A kind without records does not appear in them.
func (r *restore) count(kind string, n access.RestoreCount) {
	if n == (access.RestoreCount{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts[kind]
	c.Restored += n.Restored
	c.Kept += n.Kept
	c.Forgotten += n.Forgotten
	r.counts[kind] = c
}

// Restore merges a backup into the store, and returns the numbers of restored, kept and forgotten
// records of each kind. It first checks the whole backup; if that fails, [RecordStore.BadBackup] is
// true for the error. It then calls audited, which must record the restore in the audit and call
// merge, or return an error. Merge stores the contents of the backup. It calls progress after each
// record, never concurrently. If another restore is in progress, Restore returns [access.ErrBusy].
func (k *RecordStore) Restore(
	ctx context.Context, from io.Reader, trust access.BackupTrust,
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
	r := &restore{k: k, sets: sets{}, counts: make(map[string]access.RestoreCount)}
	own, err := k.BackupKey(ctx)
	if err != nil {
		return report, err
	}
	var vidKeys [][]byte
	if r.info, vidKeys, err = checkBackup(file, own, trust.Key); err != nil {
		return report, err
	}
	if !r.info.Authenticated && !trust.Anybody {
		return report, backupfile.ErrUnauthentic
	}
	if err := k.checkKeyLimit(ctx, vidKeys); err != nil {
		return report, err
	}
	err = audited(r.info, func() error { return r.run(ctx, file, progress) })
	return access.RestoreReport{Backup: r.info, Kinds: r.counts}, err
}

// BadBackup reports whether err means that Restore refused a backup and changed nothing.
func (*RecordStore) BadBackup(err error) bool {
	refusals := []error{
		backupfile.ErrForeign, backupfile.ErrOlder, backupfile.ErrNewer, backupfile.ErrTorn,
		backupfile.ErrUnfit, backupfile.ErrUnauthentic,
	}
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}

// spool copies a backup to a temporary file. It removes the file's name at once, so that the kernel
// deletes the file when it is closed or the process ends.
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

func (r *restore) run(ctx context.Context, file io.ReadSeeker, progress func(done, total int)) error {
	// Restore tombstones and their keys first, so that no data of a forgotten vehicle is restored.
	err := r.eachRecord(file, func(rec Record, kind string) error {
		switch kind {
		case codec.VIDKeysSubject:
			return r.restoreKeys(ctx, rec)
		case "tombstone":
			return r.restoreTombstone(ctx, rec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if r.counts["tombstone"].Restored+r.counts[codec.VIDKeysSubject].Restored > 0 {
		if err := r.k.removeForgotten(ctx); err != nil {
			return err
		}
	}
	// Restore all other records in the order of the file, and the numerous kinds in batches.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	recordsDone := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for range n {
			r.done++
			progress(r.done, r.info.Records)
		}
	}
	batches, sizes := make(map[string][]Record), make(map[string]int) // by kind; sizes in bytes
	var storing sync.WaitGroup
	places := make(chan struct{}, batchWriters)
	flush := func(kind string) error {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		batch := batches[kind]
		batches[kind], sizes[kind] = nil, 0
		storing.Go(func() {
			defer func() { <-places }()
			if err := r.restoreBatch(ctx, kind, batch); err != nil {
				fail(err)
			}
			recordsDone(len(batch))
		})
		return nil
	}
	err = r.eachRecord(file, func(rec Record, kind string) (err error) {
		switch {
		case inBatches[kind] != "":
			rec.Sealed = bytes.Clone(rec.Sealed)
			rec.Body = bodyOf(Write{Record: rec.Sealed})
			batches[kind] = append(batches[kind], rec)
			if sizes[kind] += len(rec.Sealed); len(batches[kind]) < batchRecords && sizes[kind] < batchBytes {
				return nil
			}
			return flush(kind)
		case codec.IsSet(rec.Subject):
			// It is stored together with the credential's own record, which follows.
			err = r.sets.apply(rec)
		case kind == "token" || kind == "source" || kind == "operator":
			err = r.restoreCredential(ctx, rec, kind)
		}
		if err != nil {
			return fmt.Errorf("cannot restore a record of kind %s: %w", kind, err)
		}
		recordsDone(1)
		return nil
	})
	for kind := range batches {
		err = cmp.Or(err, flush(kind))
	}
	storing.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	r.k.readRoadsSoon() // other nodes load the roads after at most Patience.Roads
	// The owners of the partitions must read the states that were restored, even if the restore has
	// failed.
	fencing, cancel := context.WithTimeout(context.WithoutCancel(ctx), fenceWithin)
	defer cancel()
	return errors.Join(err, r.k.fenceAll(fencing))
}

// fenceWithin is the time limit for fencing all partitions at the end of a restore.
const fenceWithin = 30 * time.Second

// inBatches maps the kinds of records that a restore stores in batches to their streams.
var inBatches = map[string]string{"state": codec.States, "tokenuse": codec.Tokens, "road": codec.Roads}

// eachRecord calls do for every record of the file, in order.
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

// restoreKeys adds the tombstone keys of the backup to those of this service. A hash cannot be
// converted from one key to another, so each vid is looked up with every key.
func (r *restore) restoreKeys(ctx context.Context, rec Record) error {
	theirs, err := decodeVIDKeys(rec.Body)
	if err != nil {
		return err
	}
	_, err = r.k.change(ctx, codec.Sources, codec.VIDKeysSubject, func(is Record) ([]Write, error) {
		ours, err := decodeVIDKeys(is.Body)
		if err != nil {
			return nil, err
		}
		n := len(ours.Keys)
		if ours.Keys = withKeys(ours.Keys, theirs.Keys); len(ours.Keys) == n {
			return nil, errKeepOwn
		}
		if len(ours.Keys) > maxVIDKeys {
			return nil, errVIDKeys
		}
		return appendJSON(nil, codec.VIDKeysSubject, ours)
	})
	return r.countMerged(codec.VIDKeysSubject, 1, err)
}

// checkKeyLimit returns an error if there would be more than maxVIDKeys keys with those of a
// backup.
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

func (r *restore) restoreTombstone(ctx context.Context, rec Record) error {
	t, err := decodeTombstone(rec.Subject, rec.Body)
	if err != nil {
		return err
	}
	err = errKeepOwn
	if t.InForce() {
		err = r.k.bury(ctx, t.Vehicle, t.Forgotten)
	}
	return r.countMerged("tombstone", 1, err)
}

// bury stores a tombstone under the hash of a vehicle that was forgotten at the time at. If it is
// forgotten already, or was allowed again since, bury returns errKeepOwn.
func (k *RecordStore) bury(ctx context.Context, hash access.VehicleHash, at time.Time) error {
	_, err := k.putTombstone(ctx, hash, func(t *access.Tombstone) error {
		if !t.Forgotten.IsZero() && (t.InForce() || !at.After(t.Lifted)) {
			return errKeepOwn
		}
		*t = access.Tombstone{Vehicle: hash, Forgotten: at}
		return nil
	})
	return err
}

// Bury forgets vehicles again, for example after a restore from an older backup, by the receipts of
// earlier forgets that operators have kept. It skips a vehicle that is already forgotten or that
// was allowed after the forget, and returns the number of vehicles that it forgot. After an error,
// the vehicles of the receipts before are forgotten, and EraseDue removes their states and grants.
func (k *RecordStore) Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error) {
	for _, r := range receipts {
		hash, err := access.ParseVehicleHash(r.Vehicle)
		if err != nil {
			return buried, err
		}
		if r.AllowedAt != nil {
			continue
		}
		switch err := k.bury(ctx, hash, r.ForgottenAt); {
		case err == nil:
			buried++
		case !errors.Is(err, errKeepOwn):
			return buried, err
		}
	}
	if buried == 0 {
		return 0, nil
	}
	return buried, k.removeForgotten(ctx)
}

// removeForgotten removes the states and grants of all forgotten vehicles, whose hashes alone are
// known. After an error, EraseDue calls it again.
func (k *RecordStore) removeForgotten(ctx context.Context) error {
	before := k.forgotten.All()
	if err := k.fenceAll(ctx); err != nil { // from now on, a node can fold only after it has received these tombstones
		return err
	}
	err := k.engine.Scan(ctx, codec.States, []string{"state.*.*"}, func(r Record) error {
		id, _ := codec.VehicleOfState(r.Subject)
		if codec.IsMarker(r.Body) || !k.forgotten.Has(id) {
			return nil
		}
		_, err := k.storeMarker(ctx, codec.PartitionOf(id, k.engine.Partitions()), id)
		return err
	})
	if err != nil {
		return err
	}
	if _, _, err = k.dropGrants(ctx, k.withoutForgotten); err != nil {
		return err
	}
	for _, t := range before {
		if !t.Removed {
			if err := k.noteRemoved(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// fenceAll fences every partition, with all tombstones that are stored now.
func (k *RecordStore) fenceAll(ctx context.Context) error {
	end, err := k.engine.End(ctx, codec.Sources)
	if err != nil {
		return err
	}
	for p := range k.engine.Partitions() {
		if err := k.engine.Fence(ctx, p, end.Last, ""); err != nil {
			return err
		}
	}
	return nil
}

// errKeepOwn means that the service has a record of its own, which takes precedence.
var errKeepOwn = errors.New("the service's own record is kept")

// withoutForgotten returns v without the forgotten vehicles, and whether there were any.
func (k *RecordStore) withoutForgotten(v access.Vehicles) (_ access.Vehicles, ok bool) {
	var gone []vehicle.ID
	for id := range v.Sorted() {
		if k.forgotten.Has(id) {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return v, false
	}
	return v.Without(gone...)
}

// restoreCredential restores a token, a source or an operator. A credential of the service with
// that name is kept, but is revoked or removed if it was so in the backup. A source or an operator
// is not removed if its secret differs from the secret in the backup, because it may be a new one
// with the same name.
func (r *restore) restoreCredential(ctx context.Context, rec Record, kind string) error {
	theirs, granted, err := decodeCredential(rec)
	if err != nil {
		return err
	}
	policy := theirs.Kind.Policy()
	r.sets.record(rec.Subject, granted, func(v access.Vehicles) { theirs.Vehicles, _ = r.k.withoutForgotten(v) })
	_, err = r.k.update(ctx, rec.Subject, func(ours *access.Credential) error {
		if theirs.Ended.IsZero() || !ours.Ended.IsZero() || !policy.Listed && ours.Hash != theirs.Hash {
			return errKeepOwn
		}
		ours.Ended = theirs.Ended
		return nil
	})
	if errors.Is(err, access.ErrNotFound) {
		err = r.k.Create(ctx, theirs)
	}
	return cmp.Or(r.countMerged(kind+"set", granted.Sets, err), r.countMerged(kind, 1, err))
}

// countMerged counts n records as restored if err is nil, and as kept if it is errKeepOwn. It
// returns any other err.
func (r *restore) countMerged(kind string, n int, err error) error {
	switch {
	case errors.Is(err, errKeepOwn):
		r.count(kind, access.RestoreCount{Kept: n})
		return nil
	case err == nil:
		r.count(kind, access.RestoreCount{Restored: n})
	}
	return err
}

// restoreBatch stores records of one kind, except those that compare excludes. If a stored record
// changes between the comparison and the write, each half of the batch is compared and stored by
// itself, and records other than states one by one.
func (r *restore) restoreBatch(ctx context.Context, kind string, batch []Record) error {
	for waiting := [][]Record{batch}; len(waiting) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, waiting = waiting[0], waiting[1:]
		compared := make([]comparison, len(batch))
		var looking sync.WaitGroup
		for n := range min(batchReaders, len(batch)) {
			looking.Go(func() {
				for i := n; i < len(batch); i += batchReaders {
					compared[i] = r.compare(ctx, batch[i])
				}
			})
		}
		looking.Wait()
		var counts access.RestoreCount
		var writes []Write
		var again []Record // further records of the same subjects, which a backup may contain
		subjects := make(map[string]bool)
		for i, c := range compared {
			switch {
			case c.err != nil:
				return c.err
			case c.write == nil && c.forgotten:
				counts.Forgotten++
			case c.write == nil:
				counts.Kept++
			case subjects[c.write.Subject]:
				again = append(again, batch[i])
			default:
				subjects[c.write.Subject] = true
				writes = append(writes, *c.write)
			}
		}
		err := storeBatch(ctx, r.k.engine, r.k.config.Patience.Store, inBatches[kind], writes)
		switch {
		case err == nil:
			counts.Restored = len(writes)
		case !errors.Is(err, ErrConflict):
			return err
		case kind == "state": // a vehicle has reported or was forgotten
			waiting = slices.AppendSeq(waiting, slices.Chunk(batch, (len(batch)+1)/2))
			continue
		case len(batch) > 1:
			waiting = slices.AppendSeq(waiting, slices.Chunk(batch, 1))
			continue
		default:
			counts.Kept = 1
		}
		r.count(kind, counts)
		if len(again) > 0 {
			waiting = append(waiting, again)
		}
	}
	return nil
}

// comparison is the result of comparing a record of the backup with the stored record.
type comparison struct {
	write     *Write // restores the record; nil if it must not be restored
	forgotten bool   // it must not be restored because its vehicle is forgotten
	err       error
}

// compare decides whether a record of the backup is to be restored: a state if its vehicle is not
// forgotten and no newer state is stored, in the partition that the vehicle has here; another
// record if the service lacks it, which only the write finds out.
func (r *restore) compare(ctx context.Context, rec Record) comparison {
	e := r.k.engine
	id, isState := codec.VehicleOfState(rec.Subject)
	if !isState {
		return comparison{write: &Write{rec.Subject, rec.Sealed, 0, true}}
	}
	s, err := codec.DecodeState(rec.Body)
	if err != nil {
		return comparison{err: err}
	}
	if r.forgotten(id, s) {
		return comparison{forgotten: true}
	}
	subject := codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id)
	is, err := e.Last(ctx, codec.States, subject)
	if err != nil {
		return comparison{err: err}
	}
	if is.Seq != 0 && codec.IsMarker(is.Body) {
		// The stored record is a marker, so the vehicle was forgotten. Perhaps our feed has not
		// delivered the tombstone yet.
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		if err := e.AwaitTombstones(ctx); err != nil || r.forgotten(id, s) {
			return comparison{forgotten: true, err: err}
		}
	} else if is.Seq != 0 {
		if stored, err := codec.DecodeState(is.Body); err != nil || stored.Time >= s.Time {
			return comparison{err: err}
		}
	}
	// The body is copied unchanged, so that the memory of every rule is preserved.
	return comparison{write: &Write{subject, codec.Seal(subject, append([]byte{0}, rec.Body...)), is.Seq, true}}
}

// forgotten reports whether the vehicle is forgotten, or was allowed again after the backup was
// begun or after the state s.
func (r *restore) forgotten(id vehicle.ID, s vehicle.State) bool {
	t, ok := r.k.forgotten.Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Lifted) || !s.Time.Time().After(t.Forgotten))
}
