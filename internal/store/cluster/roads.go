package cluster

import (
	"github.com/nats-io/nats.go"

	"carstate/internal/store/codec"
)

// sharedSubject is where a node tells the others what its cars show. It is in no
// stream.
func sharedSubject(node string) string { return "carstate.roads." + node }

// ShareRoads sends the other nodes what this node's cars showed. What comes while the
// cluster is out of reach is dropped: it would be old by the time it arrived.
func (e *Engine) ShareRoads(evidence []byte) error {
	if !e.nc.IsConnected() {
		return nil
	}
	subject := sharedSubject(e.node.ID)
	return e.nc.Publish(subject, codec.Seal(subject, append([]byte{0}, evidence...)))
}

// ListenRoads calls take for what other nodes send until the returned function is
// called.
func (e *Engine) ListenRoads(take func(evidence []byte, err error)) (stop func()) {
	own := sharedSubject(e.node.ID)
	sub, err := e.nc.Subscribe(sharedSubject("*"), func(m *nats.Msg) {
		if m.Subject != own {
			take(codec.Unseal(m.Subject, m.Data))
		}
	})
	if err != nil { // the connection was closed for good, which ends the node
		e.log.Warn("what other nodes tell of the roads is not heard", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() } // of a connection that is closed it fails
}
