package store

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
)

// NodeName is the name under which this node stores what only it has counted. It is
// kept in the data directory, whatever the engine, so that a node that starts again goes
// on counting where it was.
type NodeName struct {
	ID   string
	file *os.File // locked while the name is in use; nil: the name is not kept
}

// NodeFile is the file in the data directory that holds the node's name.
const NodeFile = "node"

// nodeIDLength is how many letters and digits a node's name has.
const nodeIDLength = 16

// OpenNodeName reads the name of this node, or makes one. A node that cannot keep a
// name, or whose directory another node uses, gets a new one: what it counts adds up all
// the same.
func OpenNodeName(dir string, log *slog.Logger) *NodeName {
	fresh := rand.Text()[:nodeIDLength]
	if dir == "" {
		return &NodeName{ID: fresh}
	}
	n, err := keptNode(dir, fresh)
	if err != nil {
		log.Warn("this node's name is not kept: it counts usage under a new one", "file", filepath.Join(dir, NodeFile), "error", withoutPath(err))
		return &NodeName{ID: fresh}
	}
	return n
}

func keptNode(dir, fresh string) (_ *NodeName, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, NodeFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// The kernel drops the lock with the process, however that ends.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, nodeIDLength+1))
	if err != nil {
		return nil, err
	}
	if id := string(text); isNodeID(id) {
		return &NodeName{id, f}, nil
	}
	// New, or torn by a kill before the name was ever used.
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(fresh), 0); err != nil {
		return nil, err
	}
	return &NodeName{fresh, f}, f.Sync()
}

// isNodeID reports whether a text can be a node's name, and so part of a subject.
func isNodeID(s string) bool {
	ok := len(s) == nodeIDLength
	for _, c := range []byte(s) {
		ok = ok && (c-'0' <= 9 || c-'A' <= 25)
	}
	return ok
}

// Close gives the name up.
func (n *NodeName) Close() {
	if n.file != nil {
		n.file.Close()
	}
}

// withoutPath drops the path from an error whose text names it already.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
