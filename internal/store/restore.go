package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// A restore merges a backup into the stored records. A stored record takes precedence over the
// record in the backup, with two exceptions: a state with a newer reading replaces an older state;
// and a credential or vehicle that was revoked, removed or forgotten on one side, the service or
// the backup, stays so. Every step is idempotent, so an interrupted restore can simply be repeated.

const (
	// restoreTimeout limits the time of one restore, which may have millions of states.
	restoreTimeout = 6 * time.Hour
	// stateBatch is the maximum number of states that a restore stores in one batch, and
	// stateWriters is the maximum number of batches that it stores at a time. A node can store only
	// a limited number of batches at a time, and folding needs most of them.
	stateBatch   = 500
	stateWriters = 2
)

// restore is a restore in progress.
type restore struct {
	k    *RecordStore
	info access.BackupInfo
	sets sets // set records whose credential has not followed yet

	roads     []Write // the next batch of tiles
	roadBytes int

	mu     sync.Mutex // guards the fields below
	done   int
	counts map[string]access.RestoreCount
}

// outcome says what a restore has done with one record.
type outcome int

const (
	restored outcome = iota
	kept
	forgotten // not restored, because its vehicle is forgotten
)

func (r *restore) count(subject string, o outcome) {
	kind, _, _ := strings.Cut(subject, ".")
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts[kind]
	switch o {
	case restored:
		c.Restored++
	case kept:
		c.Kept++
	case forgotten:
		c.Forgotten++
	}
	r.counts[kind] = c
}

// Restore merges a backup into the store, and returns a report with the numbers of restored, kept
// and forgotten records of each kind. It works in three steps:
//
//   - It reads the whole backup, and checks that it is intact, valid and made by a service that the
//     parameter trust permits. If the backup fails this check, Restore changes nothing and returns
//     an error for which [RecordStore.BadBackup] is true.
//   - It calls the function audited, which must record the restore in the audit and call merge, or
//     return an error. Restore returns the error of audited.
//   - The function merge stores the contents of the backup. Nothing of the backup is stored before.
//     It calls progress after each record, never concurrently, with the number of records that are
//     done and the total.
//
// If another restore is in progress, Restore returns [access.ErrBusy]. If merge fails, the report
// counts the records that were done.
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

// spool copies a backup to a temporary file, and returns the open file, positioned at its
// beginning. It removes the file's name at once, so that the kernel deletes the file when the file
// is closed or the process ends.
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
	buried := false
	err := r.eachRecord(file, func(rec Record, kind string) error {
		switch kind {
		case "tombstonekey":
			added, err := r.restoreKeys(ctx, rec)
			buried = buried || added
			return err
		case "tombstone":
			added, err := r.restoreTombstone(ctx, rec)
			buried = buried || added
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if buried {
		if err := r.k.removeForgotten(ctx); err != nil {
			return err
		}
	}
	// Restore all other records in the order of the file, and states in batches.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	states := make(chan Record, stateBatch)
	var storing sync.WaitGroup
	for range stateWriters {
		storing.Go(func() {
			for batch := range batches(states) {
				if err := r.restoreStates(ctx, batch); err != nil {
					fail(err)
				}
				for range batch {
					r.recordDone(progress)
				}
			}
		})
	}
	err = r.eachRecord(file, func(rec Record, kind string) error {
		if kind == "state" {
			rec.Body = bytes.Clone(rec.Body)
			select {
			case states <- rec:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := r.restoreRecord(ctx, rec, kind); err != nil {
			return fmt.Errorf("cannot restore a record of kind %s: %w", kind, err)
		}
		r.recordDone(progress)
		return nil
	})
	close(states)
	storing.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.storeRoads(ctx)
	}
	// The owners of the partitions must read the states that were restored, even if the restore has
	// failed.
	fencing, cancel := context.WithTimeout(context.WithoutCancel(ctx), fenceWithin)
	defer cancel()
	return errors.Join(err, r.k.fenceAll(fencing))
}

// fenceWithin is the time limit for fencing all partitions at the end of a restore.
const fenceWithin = 30 * time.Second

// batches yields the records of a channel in batches, until the channel is closed. It waits for the
// first record of each batch, and adds records that it can receive without waiting, up to
// stateBatch in total.
func batches(records <-chan Record) iter.Seq[[]Record] {
	return func(yield func([]Record) bool) {
		for r := range records {
			batch := []Record{r}
			for full := false; !full && len(batch) < stateBatch; {
				select {
				case r, ok := <-records:
					if full = !ok; ok {
						batch = append(batch, r)
					}
				default:
					full = true
				}
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// restoreRecord restores a credential, a usage record or a tile of roads. If rec is a set record,
// which lists vehicles of a large grant, restoreRecord keeps it in memory until the credential's
// own record follows. It ignores states, tombstones and the keys of tombstones, because the caller
// restores these.
func (r *restore) restoreRecord(ctx context.Context, rec Record, kind string) error {
	switch kind {
	case "token", "source", "operator":
		return r.restoreCredential(ctx, rec)
	case "sourceset", "tokenset":
		// The set is stored together with the credential's record, which refers to it and follows
		// later in the backup.
		return r.sets.apply(rec)
	case "tokenuse":
		return r.restoreIfMissing(ctx, rec)
	case "road":
		return r.restoreRoad(ctx, rec)
	}
	return nil
}

func (r *restore) recordDone(progress func(done, total int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	progress(r.done, r.info.Records)
}

// eachRecord calls do for every record of the file.
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

// restoreKeys adds the tombstone keys in rec, a record of the backup, to the keys of this service.
// With a tombstone key, an installation has hashed the vids of its forgotten vehicles. A hash
// cannot be converted from one key to another. So a node keeps the keys of all installations, and
// looks up each vid with every key. The result added is false if the service already had all keys.
func (r *restore) restoreKeys(ctx context.Context, rec Record) (added bool, err error) {
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
		if ours.Keys = withKeys(ours.Keys, theirs.Keys); len(ours.Keys) == n {
			return nil, errKeepOwn
		}
		if len(ours.Keys) > maxVIDKeys {
			return nil, errVIDKeys
		}
		return appendJSON(nil, codec.VIDKeysSubject, ours)
	})
	return !errors.Is(err, errKeepOwn), r.countMerged(rec.Subject, err)
}

// checkKeyLimit returns an error if this installation's tombstone keys, together with the keys of a
// backup (theirs), would exceed maxVIDKeys.
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

func (r *restore) restoreTombstone(ctx context.Context, rec Record) (added bool, err error) {
	t, err := decodeTombstone(rec.Subject, rec.Body)
	if err != nil {
		return false, err
	}
	if t.InForce() {
		added, err = r.k.bury(ctx, t.Vehicle, t.Forgotten)
	}
	if added {
		r.count(rec.Subject, restored)
	} else {
		r.count(rec.Subject, kept)
	}
	return added, err
}

// bury stores a tombstone under the hash of a vehicle whose vid is not known, and returns true. The
// parameter at is the time of the forget. If the vehicle is already forgotten, or was allowed again
// at the time at or later, bury changes nothing and returns false.
func (k *RecordStore) bury(ctx context.Context, hash access.VehicleHash, at time.Time) (added bool, err error) {
	errKept := errors.New("kept")
	_, err = k.putTombstone(ctx, hash, func(t access.Tombstone) (access.Tombstone, error) {
		if !t.Forgotten.IsZero() && (t.InForce() || !at.After(t.Lifted)) {
			return t, errKept
		}
		return access.Tombstone{Vehicle: hash, Forgotten: at}, nil
	})
	if errors.Is(err, errKept) {
		return false, nil
	}
	return err == nil, err
}

// Bury forgets vehicles again, for example after a restore from an older backup. The parameter
// receipts has the records of earlier forgets that operators have kept. Bury skips a vehicle that
// is already forgotten or that was allowed after the forget. It returns the number of vehicles that
// it forgot. If a receipt is invalid, Bury returns an error, and the vehicles of the receipts
// before it are already forgotten.
func (k *RecordStore) Bury(ctx context.Context, receipts []access.ForgetReceipt) (buried int, err error) {
	for _, r := range receipts {
		hash, err := access.ParseVehicleHash(r.Vehicle)
		if err != nil {
			return buried, err
		}
		if r.AllowedAt != nil {
			continue
		}
		added, err := k.bury(ctx, hash, r.ForgottenAt)
		if err != nil {
			return buried, err
		}
		if added {
			buried++
		}
	}
	if buried == 0 {
		return 0, nil
	}
	return buried, k.removeForgotten(ctx)
}

// removeForgotten removes the states and grants of all forgotten vehicles. It scans all states,
// because only the hashes of the forgotten vehicles' ids are known.
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

// fenceAll fences every partition. The owner of a partition must then receive all tombstones that
// are stored now, take the partition again, and read its states from the store again.
func (k *RecordStore) fenceAll(ctx context.Context) error {
	end, err := k.engine.End(ctx, codec.Sources)
	if err != nil {
		return err
	}
	for p := range k.engine.Partitions() {
		if err := k.engine.Fence(ctx, p, end.Last); err != nil {
			return err
		}
	}
	return nil
}

// errKeepOwn means that a restore has not stored a record of the backup, because the service has a
// record of its own, which takes precedence.
var errKeepOwn = errors.New("the service's own record is kept")

// withoutForgotten returns v without the forgotten vehicles, and true. If v contains no forgotten
// vehicle, the results are v and false.
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

// restoreCredential restores a token, a source or an operator. If the service already has a
// credential with that name, the service's own one is kept. However, if the credential was revoked
// or removed in the backup, the service's own one is revoked or removed too. But a source or an
// operator is not removed if its secret differs from the secret in the backup, because it may be a
// new source or operator with the same name.
func (r *restore) restoreCredential(ctx context.Context, rec Record) error {
	stored, err := decodeCredential(rec.Subject, rec.Body)
	if err != nil {
		return err
	}
	theirs := stored.credential()
	policy := theirs.Kind.Policy()
	r.sets.record(rec.Subject, stored.Vehicles, func(v access.Vehicles) { theirs.Vehicles, _ = r.k.withoutForgotten(v) })
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
	return r.countMergedSet(policy.Noun+"set", stored.Vehicles.Sets, rec.Subject, err)
}

func (r *restore) countMerged(subject string, err error) error {
	if errors.Is(err, errKeepOwn) {
		r.count(subject, kept)
		return nil
	}
	if err == nil {
		r.count(subject, restored)
	}
	return err
}

// countMergedSet adds a credential's record and its n set records, which list the vehicles of a
// large grant, to the counts in the report of the restore. The parameter parts is the kind under
// which the set records are counted. If err is nil, all these records are counted as restored; if
// it is errKeepOwn, as kept. In both cases, the result is nil. Any other err is returned, and
// nothing is counted.
func (r *restore) countMergedSet(parts string, n int, subject string, err error) error {
	for range n {
		if err := r.countMerged(parts, err); err != nil {
			return err
		}
	}
	return r.countMerged(subject, err)
}

// restoreIfMissing stores a record of the backup unchanged in the stream TOKENS, unless a record is
// already stored under its subject.
func (r *restore) restoreIfMissing(ctx context.Context, rec Record) error {
	_, err := r.k.engine.Store(ctx, codec.Tokens, []Write{{rec.Subject, rec.Sealed, 0, true}})
	if errors.Is(err, ErrConflict) {
		err = errKeepOwn
	}
	return r.countMerged(rec.Subject, err)
}

// restoreRoad adds a tile (a square of the map) of a backup to the next batch. When the batch has
// roadBatch tiles or at least roadBatchBytes bytes, restoreRoad stores it. If the service already
// has a record of the tile, the service's own record takes precedence.
func (r *restore) restoreRoad(ctx context.Context, rec Record) error {
	r.roads = append(r.roads, Write{rec.Subject, append([]byte(nil), rec.Sealed...), 0, true})
	if r.roadBytes += len(rec.Sealed); len(r.roads) == roadBatch || r.roadBytes >= roadBatchBytes {
		return r.storeRoads(ctx)
	}
	return nil
}

// storeRoads stores the batch of tiles, and makes this node's map load them at once. Other nodes
// load them later, after at most the interval Patience.Roads.
func (r *restore) storeRoads(ctx context.Context) error {
	conflicts, err := storeMany(ctx, r.k.engine, r.k.config.Patience.Store, codec.Roads, r.roads)
	if err != nil {
		return err
	}
	for range conflicts {
		r.count(codec.RoadPrefix, kept)
	}
	for range len(r.roads) - len(conflicts) {
		r.count(codec.RoadPrefix, restored)
	}
	r.roads, r.roadBytes = nil, 0
	select {
	case r.k.roadsRestored <- struct{}{}:
	default:
	}
	return nil
}

// stateReaders is the maximum number of stored states that a restore looks up concurrently for one
// batch.
const stateReaders = 16

// restoreStates stores the states of the batch, except those that are not newer than the stored
// state and those of forgotten vehicles. Each state is stored in the partition that its vehicle has
// in this installation. If a stored state changes between the comparison and the write,
// restoreStates compares it again.
func (r *restore) restoreStates(ctx context.Context, batch []Record) error {
	for len(batch) > 0 {
		wanted := make([]*Write, len(batch))
		var failed error
		var mu sync.Mutex // guards failed
		var looking sync.WaitGroup
		for n := range min(stateReaders, len(batch)) {
			looking.Go(func() {
				for i := n; i < len(batch); i += stateReaders {
					w, err := r.compare(ctx, batch[i])
					if err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
						return
					}
					wanted[i] = w
				}
			})
		}
		looking.Wait()
		if failed != nil {
			return failed
		}
		var writes []Write
		var of []Record
		for i, w := range wanted {
			if w != nil {
				writes, of = append(writes, *w), append(of, batch[i])
			}
		}
		conflicts, err := storeMany(ctx, r.k.engine, r.k.config.Patience.Store, codec.States, writes)
		if err != nil {
			return err
		}
		batch = nil
		for _, i := range conflicts {
			batch = append(batch, of[i]) // conflict: the vehicle has reported or was forgotten
			of[i] = Record{}
		}
		for _, rec := range of {
			if rec.Subject != "" {
				r.count(rec.Subject, restored)
			}
		}
	}
	return nil
}

// compare returns the write that restores the state in rec. If the vehicle is forgotten, or the
// stored state is at least as new as the state in rec, compare returns nil without an error, and
// counts rec in the report of the restore.
func (r *restore) compare(ctx context.Context, rec Record) (*Write, error) {
	e := r.k.engine
	id, _ := codec.VehicleOfState(rec.Subject)
	s, err := codec.DecodeState(rec.Body)
	if err != nil {
		return nil, err
	}
	if r.forgotten(id, s) {
		r.count(rec.Subject, forgotten)
		return nil, nil
	}
	subject := codec.StateSubject(codec.PartitionOf(id, e.Partitions()), id)
	is, err := e.Last(ctx, codec.States, subject)
	if err != nil {
		return nil, err
	}
	if is.Seq != 0 && codec.IsMarker(is.Body) {
		// The stored record is a marker, so the vehicle was forgotten. Perhaps our feed has not
		// delivered the tombstone yet.
		if err := e.AwaitTombstones(ctx); err != nil {
			return nil, err
		}
		if r.forgotten(id, s) {
			r.count(rec.Subject, forgotten)
			return nil, nil
		}
	} else if is.Seq != 0 {
		stored, err := codec.DecodeState(is.Body)
		if err != nil {
			return nil, err
		}
		if stored.Time >= s.Time {
			r.count(rec.Subject, kept)
			return nil, nil
		}
	}
	// The body is copied unchanged, so that the memory of every rule is preserved.
	return &Write{subject, codec.Seal(subject, append([]byte{0}, rec.Body...)), is.Seq, true}, nil
}

// forgotten reports whether the state s of the backup must not be restored, because its vehicle is
// forgotten, or was forgotten and allowed again. If it was allowed again, s may be restored only if
// the backup was begun after that, and s is newer than the forget.
func (r *restore) forgotten(id vehicle.ID, s vehicle.State) bool {
	t, ok := r.k.forgotten.Find(id)
	return ok && (t.InForce() || !r.info.Began.After(t.Lifted) || !s.Time.Time().After(t.Forgotten))
}
