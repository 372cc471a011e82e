package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/store/codec"
)

type backupKeyRecord struct {
	Key string `json:"key"`
}

// BackupKey returns the key with which this service authenticates its backups. It creates and
// stores the key if there is none.
func (k *RecordStore) BackupKey(ctx context.Context) (string, error) {
	fresh, _ := access.NewSecret(access.BackupKind)
	r := backupKeyRecord{fresh}
	const stream, subject = codec.Sources, codec.BackupKeySubject
	_, err := Change(ctx, k.engine, k.config.Patience.Store, stream, subject, func(is Record) ([]Write, error) {
		if is.Seq == 0 {
			r.Key = fresh
			return appendJSON(nil, subject, r)
		}
		if json.Unmarshal(is.Body, &r) != nil || access.Check(access.BackupKind, []byte(r.Key)) != nil {
			return nil, unfit{subject, errors.New("not a valid backup key")}
		}
		return nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot load the backup key: %w", err)
	}
	return r.Key, nil
}
