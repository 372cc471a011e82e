package cluster

import (
	"fmt"
	"time"
)

// FeedAge returns the maximum age of this node's copies of the streams that it follows
// (fedStreams). Until every feed has caught up, it returns an error.
func (e *Engine) FeedAge() (time.Duration, error) {
	worst := time.Duration(0)
	for _, name := range fedStreams {
		age, ok := e.beats[name].age()
		if !ok {
			return 0, fmt.Errorf("the feed of %s has not caught up yet", name)
		}
		worst = max(worst, age)
	}
	return worst, nil
}
