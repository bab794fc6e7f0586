package pvc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Words is what stands on a claim about its holders.
//
//	"LeaderWorkerSet/llama, Pod/llama-0, +3"                     held
//	"cooling until 2026-11-21T22:05:00Z: LeaderWorkerSet/llama"  the last holder went
//	"unverified"                                                 nobody has looked yet
type Words struct {
	// Names of the holders; of the last ones while cooling.
	Names string
	// Until is when a cooling claim is free, or zero.
	Until time.Time
}

const (
	cooling = "cooling until "
	// maxWords has all that stands on a claim be less than 1 KiB, while it cools as well.
	maxWords = 1<<10 - len(cooling+"2006-01-02T15:04:05Z"+": ")
)

// ParseWords reads HoldersAnnotation. What cannot be read is taken as names: it
// holds until it is written again.
func ParseWords(value string) Words {
	rest, ok := strings.CutPrefix(value, cooling)
	if !ok {
		return Words{Names: value}
	}
	at, names, ok := strings.Cut(rest, ": ")
	until, err := time.Parse(time.RFC3339, at)
	if !ok || err != nil {
		return Words{Names: value}
	}
	return Words{Names: names, Until: until}
}

func (w Words) String() string {
	if w.Until.IsZero() {
		return w.Names
	}
	return cooling + w.Until.UTC().Format(time.RFC3339) + ": " + w.Names
}

// namedHolders are the names of at most maxNamed holders, in less than 1 KiB.
// Workloads come before their pods: they are what a person would turn to.
func namedHolders(holders []Holder) string {
	var names []string
	for _, pods := range []bool{false, true} {
		for _, h := range holders {
			if strings.HasPrefix(h.Name, "Pod/") == pods && !slices.Contains(names, h.Name) {
				names = append(names, h.Name)
			}
		}
	}
	for shown := min(len(names), maxNamed); shown > 0; shown-- {
		words := strings.Join(names[:shown], ", ")
		if more := len(names) - shown; more > 0 {
			words += fmt.Sprintf(", +%d", more)
		}
		if len(words) < maxWords {
			return words
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("+%d", len(names))
}

// digest tells two sets of holders apart by UID, whatever is shown of them.
func digest(holders []Holder) string {
	sum := sha256.New()
	for _, h := range holders {
		sum.Write([]byte(h.Name + "\x00" + string(h.UID) + "\x00" + h.Reason + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
