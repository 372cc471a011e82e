package drivelog

import "slices"

// Count is of rows or readings that were left out or corrected; Reason is for the user.
type Count struct {
	Reason string
	N      int
}

type account struct{ rows, readings, mended counts }

type counts []Count

func (c *counts) add(reason string) {
	i := slices.IndexFunc(*c, func(k Count) bool { return k.Reason == reason })
	if i < 0 {
		i = len(*c)
		*c = append(*c, Count{Reason: reason})
	}
	(*c)[i].N++
}

const (
	noTime       = "no readable time"
	tooLong      = "more cells than the header has columns, so none can be trusted"
	noCell       = "every cell is blank or unreadable"
	noGoodCell   = "the only readings are outside what their sensors can give"
	otherVehicle = "of another vehicle than the first row"
	tooLate      = "more than a year after the first row"
	otherSensor  = "only sensors that no rule uses were read"
	nothingNew   = "repeats earlier values; no sensor was certainly read again"
)

const (
	notANumber   = "not a number"
	impossible   = "outside what the sensor can give"
	cutOff       = "last cell of a row that ends early, perhaps cut in the middle"
	unknownUnit  = "a unit that is not known"
	unknownLabel = "a label that is not one of the three known"
)

const (
	repeatedHeader = "header line repeated inside the file: taken as the start of another recording"
	clockSet       = "clock set back, or ahead by more than a day: the row follows the one before by 1 ms"
	runTimeAgain   = "engine run time starts again: the row follows the one before"
	newSession     = "recording joined on: a pause of an hour put before it"
	damagedEnd     = "file ends early or damaged: read up to there"
)
