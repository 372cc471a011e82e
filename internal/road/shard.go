package road

import (
	"cmp"
	"sync"

	"example.org/carstate/internal/driving"
)

// Pages never move, so the map grows without copying and a place stays valid. Only a stretch that
// one source alone has driven is ever removed; it is the next of no other.
const (
	shards      = 64
	pageSize    = 128 // stretches
	sourceShare = 8   // 1/8 of a shard may be of one source alone
)

type shard struct {
	mu    sync.Mutex
	pages []*[pageSize]stretch
	count uint32
	most  uint32   // zero means mostInShard
	index []uint32 // open addressing: numbers of stretches plus one; zero is free
	late  map[uint32]lateQuarter
	// alone counts the stretches that only this source has driven; queue has these, the oldest
	// first, and some that others have driven since.
	alone map[uint32]uint32
	queue []uint32
}

const mostInShard = 1<<placeBits - 1

func hashOf(name driving.Stretch) uint64 {
	h := uint64(name) // splitmix64, because the names of neighbouring stretches differ in few bits
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (sh *shard) at(i uint32) *stretch { return &sh.pages[i/pageSize][i%pageSize] }

// slot returns where the index has name, or room for it.
func (sh *shard) slot(name driving.Stretch) uint64 {
	mask := uint64(len(sh.index) - 1)
	for h := hashOf(name) / shards; ; h++ {
		if i := sh.index[h&mask]; i == 0 || sh.at(i-1).name == name {
			return h & mask
		}
	}
}

func (sh *shard) find(name driving.Stretch) (uint32, bool) {
	if len(sh.index) == 0 {
		return 0, false
	}
	i := sh.index[sh.slot(name)]
	return i - 1, i != 0
}

// With mostLate late quarter hours, a shard adds them all to the profiles.
const mostLate = 4096

// lateQuarter sums readings that come, say, a day late, and still teach the free flow.
type lateQuarter struct {
	quarter uint32 // number since 1970
	tally
}

// addLate returns the source whose speed was limited (see tally.speed), or 0.
func (sh *shard) addLate(i uint32, e *evidence) (doubted uint32) {
	q := sh.late[i]
	if quarter := e.Unix / quarterSeconds; q.quarter != quarter {
		doubted = sh.at(i).endQuarter(&q.tally)
		q.quarter = quarter
	}
	q.add(e, e.Metres, e.Seconds)
	if sh.late == nil || len(sh.late) == mostLate {
		delete(sh.late, i) // this quarter hour is not finished
		for k, ended := range sh.late {
			sh.at(k).endQuarter(&ended.tally)
		}
		sh.late = make(map[uint32]lateQuarter)
	}
	sh.late[i] = q
	return doubted
}

// getAt adds a missing stretch, or returns nil if the shard is full or the source has its share.
func (sh *shard) getAt(name driving.Stretch, source uint32) (*stretch, place) {
	i, ok := sh.find(name)
	if !ok {
		if sh.hasShare(source) {
			return nil, 0
		}
		if i, ok = sh.insert(name); !ok {
			return nil, 0
		}
		if source != 0 {
			if sh.alone == nil {
				sh.alone = make(map[uint32]uint32)
			}
			sh.alone[source]++
			sh.queue = append(sh.queue, i)
			sh.at(i).lead, sh.at(i).alone = source, true
		}
	}
	s := sh.at(i)
	if s.alone && s.lead != source {
		s.alone = false
		sh.alone[s.lead]--
	}
	return s, place(hashOf(name)%shards<<placeBits | uint64(i+1))
}

func (sh *shard) hasShare(source uint32) bool {
	return source != 0 && sh.alone[source] >= max(1, cmp.Or(sh.most, mostInShard)/sourceShare)
}

// insert replaces the oldest stretch that one source alone has driven if the shard is full.
func (sh *shard) insert(name driving.Stretch) (i uint32, ok bool) {
	for sh.count >= cmp.Or(sh.most, mostInShard) {
		if len(sh.queue) == 0 {
			return 0, false
		}
		i, sh.queue = sh.queue[0], sh.queue[1:]
		if s := sh.at(i); s.alone {
			sh.alone[s.lead]--
			sh.removeFromIndex(i)
			delete(sh.late, i)
			*s = stretch{name: name}
			sh.addToIndex(i)
			return i, true
		}
	}
	return sh.grow(name), true
}

func (sh *shard) grow(name driving.Stretch) uint32 {
	if int(sh.count) == len(sh.pages)*pageSize {
		sh.pages = append(sh.pages, new([pageSize]stretch))
	}
	if uint64(sh.count+1)*8 > uint64(len(sh.index))*7 {
		sh.index = make([]uint32, max(64, 2*len(sh.index)))
		for k := range sh.count {
			sh.addToIndex(k)
		}
	}
	i := sh.count
	sh.count++
	sh.at(i).name = name
	sh.addToIndex(i)
	return i
}

func (sh *shard) addToIndex(i uint32) { sh.index[sh.slot(sh.at(i).name)] = i + 1 }

// removeFromIndex moves back the stretches that stretch i displaced.
func (sh *shard) removeFromIndex(i uint32) {
	mask := uint64(len(sh.index) - 1)
	free := sh.slot(sh.at(i).name)
	for h := (free + 1) & mask; sh.index[h] != 0; h = (h + 1) & mask {
		home := hashOf(sh.at(sh.index[h]-1).name) / shards
		if (h-home)&mask >= (h-free)&mask {
			sh.index[free], free = sh.index[h], h
		}
	}
	sh.index[free] = 0
}
