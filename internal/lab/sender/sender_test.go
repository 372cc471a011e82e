package sender_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"example.org/carstate/internal/lab/sender"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func TestSourceThatSpreads(t *testing.T) {
	var asked atomic.Int64
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"this key is not known"}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"accepted":1,"rejected":[]}`)
	}))
	defer door.Close()
	broker := refusingBroker(t, &asked)
	sample := vehicle.Sample{Vehicle: "car", Time: 1000}
	testkit.NoError(t, sample.Set(signal.Speed, 50))
	for name, send := range map[string]func(sender.Login) error{
		"HTTP": func(as sender.Login) error {
			s := sender.HTTP(door.URL, as, nil)
			defer s.Close()
			return s.Send(t.Context(), []vehicle.Sample{sample})
		},
		"MQTT": func(as sender.Login) error {
			s, err := sender.MQTT(t.Context(), broker, as, nil)
			if err == nil {
				s.Close()
			}
			return err
		},
	} {
		asked.Store(0)
		if err := send(sender.Login{"gateway", "key", time.Now()}); err != nil || asked.Load() != 2 {
			t.Errorf("%s, just made: got %v after %d tries, want no error after 2", name, err, asked.Load())
		}
		asked.Store(0)
		if err := send(sender.Login{Name: "gateway", Key: "key"}); err == nil || !strings.Contains(err.Error(), "refused") ||
			asked.Load() != 1 {
			t.Errorf("%s, made long ago: got %v after %d tries, want it refused after 1", name, err, asked.Load())
		}
	}
}

func TestSourceOverItsRate(t *testing.T) {
	var asked atomic.Int64
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":"too fast"}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"accepted":1,"rejected":[]}`)
	}))
	defer door.Close()
	asked.Store(1) // so that the login is accepted
	byMQTT, err := sender.MQTT(t.Context(), refusingBroker(t, &asked), sender.Login{Name: "gateway", Key: "key"}, nil)
	testkit.NoError(t, err)
	defer byMQTT.Close()
	byHTTP := sender.HTTP(door.URL, sender.Login{Name: "gateway", Key: "key"}, nil)
	defer byHTTP.Close()
	sample := vehicle.Sample{Vehicle: "car", Time: 1000}
	for name, s := range map[string]sender.Sender{"HTTP": byHTTP, "MQTT": byMQTT} {
		asked.Store(0)
		if err := s.Send(t.Context(), []vehicle.Sample{sample}); err != nil || asked.Load() != 2 {
			t.Errorf("%s: got %v after %d tries, want none after 2", name, err, asked.Load())
		}
	}
}

// refusingBroker counts logins and messages, and refuses the first and every second one after it.
func refusingBroker(t *testing.T, asked *atomic.Int64) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := packets.ReadPacket(c); err == nil {
				ack := packets.NewControlPacket(packets.CONNACK)
				if asked.Add(1)%2 == 1 {
					ack.Content.(*packets.Connack).ReasonCode = packets.ConnackBadUsernameOrPassword
				}
				_, _ = ack.WriteTo(c)
			}
			go func() {
				defer c.Close()
				for {
					p, err := packets.ReadPacket(c)
					if err != nil {
						return
					}
					m, ok := p.Content.(*packets.Publish)
					if !ok {
						continue
					}
					ack := &packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{ReasonString: "too fast: wait 1 s"}}
					if asked.Add(1)%2 == 1 {
						ack.ReasonCode = packets.PubackQuotaExceeded
					}
					_, _ = ack.WriteTo(c)
				}
			}()
		}
	}()
	return "mqtt://" + l.Addr().String()
}
