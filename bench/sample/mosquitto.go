package sample

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"carstate/internal/nodeprocess"
)

// mosquitto is a process of Mosquitto, a widely used MQTT broker, with persistence on.
type mosquitto struct {
	addr string
	cmd  *exec.Cmd
}

// startMosquitto starts a broker that queues the messages of the cars for a subscriber that is not
// connected. The error is [exec.ErrNotFound] if the program is not installed.
func startMosquitto(ctx context.Context, dir string, cars int) (*mosquitto, error) {
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		return nil, exec.ErrNotFound
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mosquitto{addr: l.Addr().String()}
	port := l.Addr().(*net.TCPAddr).Port
	own := filepath.Join(dir, fmt.Sprint("mosquitto", cars))
	config := filepath.Join(own, "mosquitto.conf")
	err = errors.Join(l.Close(), os.Mkdir(own, 0o700), os.WriteFile(config, fmt.Appendf(nil,
		"listener %d 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\npersistence_location %s/\n"+
			"autosave_interval 1\nmax_queued_messages 0\nlog_type error\n", port, own), 0o600))
	if err != nil {
		return nil, err
	}
	m.cmd = exec.Command(path, "-c", config)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	if err := nodeprocess.Until(ctx, 20*time.Second, func(context.Context) error { return m.subscribe() }); err != nil {
		m.stop()
		return nil, fmt.Errorf("mosquitto: %w", err)
	}
	return m, nil
}

// subscribe creates a persistent session that subscribes to all vehicles.
func (m *mosquitto) subscribe() error {
	var out bytes.Buffer
	err := errors.Join((&packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: 4,
		Connect: packets.ConnectParams{ProtocolName: []byte("MQTT"), Keepalive: 300, ClientIdentifier: "away"},
	}).ConnectEncode(&out), (&packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Subscribe, Qos: 1}, ProtocolVersion: 4, PacketID: 1,
		Filters: packets.Subscriptions{{Filter: "vehicles/#", Qos: 1}},
	}).SubscribeEncode(&out), (&packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Disconnect}, ProtocolVersion: 4,
	}).DisconnectEncode(&out))
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", m.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(out.Bytes()); err != nil {
		return err
	}
	answer := make([]byte, 64) // CONNACK and SUBACK; then the broker closes the connection
	n := 0
	for err == nil && n < len(answer) {
		var some int
		some, err = conn.Read(answer[n:])
		n += some
	}
	if n < 9 || answer[8] != 1 {
		return errors.New("the subscription was not granted")
	}
	return nil
}

// Resident implements broker.
func (m *mosquitto) Resident() (int64, error) { return nodeprocess.ResidentOf(m.cmd.Process.Pid) }

// CPU implements broker.
func (m *mosquitto) CPU() (time.Duration, error) { return nodeprocess.CPUOf(m.cmd.Process.Pid) }

func (m *mosquitto) stop() {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	_ = m.cmd.Wait() // ended, as asked
}
