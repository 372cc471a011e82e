package derive

import "hash/fnv"

// ownerOf returns the member to which partition p is assigned: the member with the highest score
// (rendezvous hashing). If there are no members, it returns "". If a member joins, the only
// partitions that move are those that move to this member. If a member leaves, only its own
// partitions move. The order of members does not matter.
func ownerOf(p int, members []string) (owner string) {
	var best uint64
	for _, m := range members {
		if s := score(m, p); owner == "" || s > best || s == best && m < owner {
			owner, best = m, s
		}
	}
	return owner
}

// score rates a member for a partition; the member with the highest score gets the partition. The
// score is computed from the FNV-1a hash of the member's name and from the partition's number, with
// a mixing step, so that similar inputs get very different scores. All nodes of a cluster must
// compute the same score, even if they run different releases.
func score(member string, p int) uint64 {
	name := fnv.New64a()
	name.Write([]byte(member))
	h := name.Sum64() + uint64(p)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
