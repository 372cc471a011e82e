package node

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/periodic"
)

func (n *Node) notifySupervisor(ctx context.Context) {
	if present, err := daemon.SdNotify(false, "STATUS=starting"); !present || err != nil {
		return
	}
	// Zero means that systemd's watchdog is off.
	silence, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.config.Log.Warn("the supervisor's watchdog cannot be notified", "error", err)
	}
	var last time.Time
	lastStatus := ""
	for range periodic.NowAndEvery(ctx, healthEvery) {
		status := "ready"
		if err := n.health.ready(); err != nil {
			status = "not ready: " + access.OneLine(err)
		}
		message := "STATUS=" + status
		if status == "ready" {
			message += "\n" + daemon.SdNotifyReady
		}
		if status != lastStatus {
			notify(message)
			lastStatus = status
		}
		if silence > 0 && time.Since(last) > silence/3 && n.engine.Alive() == nil {
			notify(daemon.SdNotifyWatchdog)
			last = time.Now()
		}
	}
}

// If messages are missing, systemd's own time limits apply.
func notify(message string) {
	_, _ = daemon.SdNotify(false, message)
}
