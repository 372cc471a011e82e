package derive

// ownerOf says which of the members is to have partition p: the one with the
// highest score (rendezvous hashing). A member that comes takes partitions from
// all others and causes no other move; one that goes leaves its own to all
// others. "" if there are no members. The order of the members does not matter.
func ownerOf(p int, members []string) (owner string) {
	var best uint64
	for _, m := range members {
		if s := score(m, p); owner == "" || s > best || s == best && m < owner {
			owner, best = m, s
		}
	}
	return owner
}

// score is FNV-1a of the member's name and the partition, mixed so that numbers
// that differ little have scores that differ much. All nodes of a cluster must
// agree on it, those of other releases too.
func score(member string, p int) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(member) {
		h = (h ^ uint64(member[i])) * prime
	}
	h += uint64(p) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
