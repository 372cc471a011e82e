package ingest

import (
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/telemetry"
)

var (
	errBodyTooLarge   = telemetry.NewRefusal(access.OverLimit, "the body is larger than 8 MiB after decompression")
	errMappedTooLarge = telemetry.NewRefusal(access.OverLimit, "a body in the format of this source is larger than 1 MiB")
	errExpands        = telemetry.NewRefusal(access.OverLimit, "the body is more than 100 times as large after "+
		"decompression: send no white space, and no sample twice")
	errUnreadable = telemetry.NewRefusal(access.Unreadable,
		"the body cannot be read: it is incomplete, or does not match its Content-Encoding")
	errSlowBody   = telemetry.NewRefusal(access.TooSlow, "the body"+tooSlow)
	errSlowPacket = telemetry.NewRefusal(access.TooSlow, "the packet"+tooSlow)
	errOverQuota  = telemetry.NewRefusal(access.NoRoom,
		"too much telemetry is in progress, in total or of this source; nothing of this request was accepted")
	errShare     = telemetry.NewRefusal(access.NoRoom, "the source has used up its share of the MQTT connections")
	errNotStored = telemetry.NewRefusal(access.NotStored,
		"telemetry cannot be stored now; nothing of this request was accepted")
	errEmptyBody = telemetry.NewRefusal(access.Empty, "the body has no sample")
	errEmpty     = telemetry.NewRefusal(access.Empty, "the message has no sample")
	errQoS       = telemetry.NewRefusal(access.BadQoS, "QoS 2 is not supported: use QoS 0 or 1")
	errAlias     = telemetry.NewRefusal(access.BadTopic, "topic aliases are not supported: send the whole topic")
	errTopic     = telemetry.NewRefusal(access.BadTopic, "wrong topic: send telemetry to vehicles/VID/telemetry; "+
		"a VID has letters and digits only")
	errPacketTooLarge = telemetry.NewRefusal(access.OverLimit, "the packet is larger than 1 MiB, or too large for its type")
	errMethod         = telemetry.NewRefusal(access.Method, "method not allowed: send telemetry by POST")
	errContentType    = telemetry.NewRefusal(access.ContentType,
		"the Content-Type must be application/json, application/x-ndjson or application/cloudevents+json, in UTF-8")
	errEncoding = telemetry.NewRefusal(access.ContentType, "the Content-Encoding must be gzip, or the header must be absent")
)

const tooSlow = " arrived too slowly: the minimum is 1 KB/s, and at most 60 s in total"

func behind(wait time.Duration) *telemetry.Refusal {
	return telemetry.NewRefusal(access.Backlog, fmt.Sprintf(
		"earlier samples of this source are still being processed: wait %d s", access.WaitSeconds(wait)))
}

func overRate(r access.Rate, wait time.Duration) *telemetry.Refusal {
	unit := "samples"
	if r.Calls == 1 {
		unit = "sample"
	}
	return telemetry.NewRefusal(access.OverRate, fmt.Sprintf("the policy of this source allows %d %s in %d s: wait %d s",
		r.Calls, unit, int64(r.Window/time.Second), access.WaitSeconds(wait)))
}
