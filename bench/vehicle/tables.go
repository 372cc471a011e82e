package vehicle

import (
	"fmt"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"

	"carstate/internal/fleet"
	"carstate/internal/vehicle"
)

// vid is the id of vehicle i, as long as the ids in the interface's example.
func vid(i int) string { return fmt.Sprintf("NHeN4UqVsohGS%08d", i) }

// setVID writes vehicle i's id over that of another one.
func setVID(b []byte, i int) {
	for k := len(b) - 1; k >= len(b)-8; k-- {
		b[k], i = '0'+byte(i%10), i/10
	}
}

// table holds the answer of every vehicle, safe for concurrent use.
type table interface {
	put(vid string, r record)
	get(vid []byte) record
	forget(vid string)
}

// record is an answer as a Go programmer would write it down.
type record struct {
	drivingTime, throttleTime int64
	driving, throttle         uint8
	notDriving                bool
}

// subject is who is measured.
type subject struct {
	name string
	make func() table
}

var subjects = []subject{
	{"carstate", func() table { return fleetTable{fleet.New()} }},
	{"map[string]struct", func() table { return &lockedMap{m: make(map[string]record)} }},
	{"xsync.Map", func() table { return syncMap{xsync.NewMap[string, record]()} }},
}

// fleetTable is carstate's own.
type fleetTable struct{ t *fleet.Table }

func (f fleetTable) put(vid string, r record) {
	f.t.Put(vehicle.ID(vid), fleet.Answer{
		Driving:  vehicle.DrivingVerdict{State: vehicle.DrivingState(r.driving), NotDriving: r.notDriving, Time: vehicle.UnixMilli(r.drivingTime)},
		Throttle: vehicle.ThrottleVerdict{System: vehicle.ThrottleSystem(r.throttle), Time: vehicle.UnixMilli(r.throttleTime)},
	})
}

func (f fleetTable) get(vid []byte) record {
	a := f.t.Get(vid)
	return record{int64(a.Driving.Time), int64(a.Throttle.Time), uint8(a.Driving.State), uint8(a.Throttle.System), a.Driving.NotDriving}
}

func (f fleetTable) forget(vid string) { f.t.Delete(vehicle.ID(vid)) }

// lockedMap is the simplest thing that works.
type lockedMap struct {
	mu sync.RWMutex
	m  map[string]record
}

func (l *lockedMap) put(vid string, r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[vid] = r
}

func (l *lockedMap) get(vid []byte) record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.m[string(vid)]
}

func (l *lockedMap) forget(vid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, vid)
}

// syncMap is the concurrent map that Go programmers reach for.
type syncMap struct{ m *xsync.Map[string, record] }

func (s syncMap) put(vid string, r record) { s.m.Store(vid, r) }

func (s syncMap) get(vid []byte) record {
	r, _ := s.m.Load(string(vid))
	return r
}

func (s syncMap) forget(vid string) { s.m.Delete(vid) }
