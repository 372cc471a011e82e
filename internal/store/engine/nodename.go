package engine

import (
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"example.org/carstate/internal/access"
)

// NodeName is the name under which this node stores its counts of the calls made with each token.
// The name is kept in the data directory, so that a restarted node continues its counts.
type NodeName struct {
	ID   string
	file *os.File // locked while the name is in use; nil if the name is not kept
}

// NodeFile is the file in the data directory that holds the node's name.
const NodeFile = "node"

// nodeIDLength is the length of a node's name, in letters and digits.
const nodeIDLength = 16

// OpenNodeName reads the name of this node from the directory dir, or creates a name there. If dir
// is "", cannot be used or is in use by another process, the node gets a new name at each start.
// With a new name, no count is lost, because the total for a token includes the counts under all
// names.
func OpenNodeName(dir string, log *slog.Logger) *NodeName {
	fresh := rand.Text()[:nodeIDLength]
	if dir == "" {
		return &NodeName{ID: fresh}
	}
	n, err := keptNode(dir, fresh)
	if err != nil {
		log.Warn("cannot keep this node's name: using a new one to count usage",
			"file", filepath.Join(dir, NodeFile), "error", access.WithoutPath(err))
		return &NodeName{ID: fresh}
	}
	return n
}

func keptNode(dir, fresh string) (_ *NodeName, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, NodeFile), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// The kernel releases the lock when the process ends for any reason.
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
	// The file is new, or it is incomplete because the process was killed while it wrote the file,
	// before it used the name.
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(fresh), 0); err != nil {
		return nil, err
	}
	return &NodeName{fresh, f}, f.Sync()
}

// isNodeID reports whether s is a valid name of a node. Such a name is also valid in a subject.
func isNodeID(s string) bool {
	ok := len(s) == nodeIDLength
	for _, c := range []byte(s) {
		ok = ok && (c-'0' <= 9 || c-'A' <= 25)
	}
	return ok
}

// Close releases the lock on the node's name, so that another process may use the name.
func (n *NodeName) Close() {
	if n.file != nil {
		n.file.Close()
	}
}
