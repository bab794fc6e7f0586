package pvc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// maxRecord bounds the use record: all annotations of an object share 256 KiB.
const maxRecord = 64 << 10

// ErrFull is the error of a record that can take no more pods.
var ErrFull = errors.New("use record is full")

// Record is the pods that may be bound to a PVC, as UsersAnnotation lists them: sorted
// "name=uid" with commas between.
type Record []Recorded

// Recorded is one pod of a record.
type Recorded struct {
	Name string
	UID  types.UID
}

// ParseRecord reads a record. An unreadable entry is an error: it may name a pod.
func ParseRecord(value string) (Record, error) {
	if value == "" {
		return nil, nil
	}
	var r Record
	for _, entry := range strings.Split(value, ",") {
		name, uid, ok := strings.Cut(entry, "=")
		if !ok || name == "" || uid == "" {
			return nil, fmt.Errorf("use record: %q is not \"name=uid\"", entry)
		}
		r = append(r, Recorded{name, types.UID(uid)})
	}
	return r, nil
}

// With is the record with one more pod, or ErrFull: then the pod waits.
func (r Record) With(pod Recorded) (Record, error) {
	if pod.Name == "" || pod.UID == "" {
		return nil, fmt.Errorf("use record: pod %q with UID %q is no incarnation", pod.Name, pod.UID)
	}
	if slices.Contains(r, pod) {
		return r, nil
	}
	longer := append(slices.Clone(r), pod)
	slices.SortFunc(longer, func(a, b Recorded) int {
		return strings.Compare(a.Name+"="+string(a.UID), b.Name+"="+string(b.UID))
	})
	if len(longer.String()) > maxRecord {
		return nil, fmt.Errorf("%w: it names %d pods", ErrFull, len(r))
	}
	return longer, nil
}

// Without is the record without pods that are gone.
func (r Record) Without(gone func(Recorded) bool) Record {
	return slices.DeleteFunc(slices.Clone(r), gone)
}

func (r Record) String() string {
	entries := make([]string, len(r))
	for i, pod := range r {
		entries[i] = pod.Name + "=" + string(pod.UID)
	}
	return strings.Join(entries, ",")
}
