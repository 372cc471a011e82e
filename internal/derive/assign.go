package derive

import "hash/fnv"

// ownerOf is rendezvous hashing: if a member joins, partitions move only to it, and if one leaves, only
// its own. The order of members does not matter. Without members, the owner is "".
func ownerOf(p int, members []string) (owner string) {
	var best uint64
	for _, m := range members {
		if s := score(m, p); owner == "" || s > best || s == best && m < owner {
			owner, best = m, s
		}
	}
	return owner
}

// All nodes of a cluster must compute the same score, even if they run different releases. The last steps
// are splitmix64.
func score(member string, p int) uint64 {
	name := fnv.New64a()
	name.Write([]byte(member))
	h := name.Sum64() + uint64(p)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
