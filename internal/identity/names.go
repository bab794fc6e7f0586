package identity

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// NoOrdinal is the ordinal of a name that has none.
const NoOrdinal = -1

// LeaderName is the name of the leader of a group. The worker StatefulSet of
// the group and, with a subdomain per group, its Service have the same name.
func LeaderName(set string, group int) string {
	return set + "-" + strconv.Itoa(group)
}

// ParentAndOrdinal splits the name of a pod of a StatefulSet at its last dash. A name that does not end in a dash and
// digits, or whose digits exceed an int32, has no parent and the ordinal NoOrdinal.
//
// It reads "a-007" as ordinal 7, as the StatefulSet controller does, although no StatefulSet gives that name: who needs
// the pod to be that very one must ask whether the name built again from the parts is the same.
func ParentAndOrdinal(podName string) (parent string, ordinal int) {
	dash := strings.LastIndexByte(podName, '-')
	if dash < 0 {
		return "", NoOrdinal
	}
	n, err := strconv.ParseUint(podName[dash+1:], 10, 31)
	if err != nil {
		return "", NoOrdinal
	}
	return podName[:dash], int(n)
}

// Ordinal is the ordinal of a name, or NoOrdinal.
func Ordinal(podName string) int {
	_, ordinal := ParentAndOrdinal(podName)
	return ordinal
}

// GroupKey is the label value by which the pods of one group find each other: 40 hex digits.
func GroupKey(namespace, leaderPodName string) string {
	return sha1Hex(namespace + "/" + leaderPodName)
}

// HashName is the host name of a Hash leader. The worker
// StatefulSet of the group and, with a subdomain per group, its Service have the same name.
func HashName(set, key string) string { return set + "-" + key[:min(len(key), 8)] }

// indexDigits is how many digits of a key make the index of its group.
const indexDigits = 7

// HashIndex is the index of a Hash group: the first seven hex digits as a number. It is
// below 2^28, and groups of equal indexes have no place in one set.
func HashIndex(key string) int {
	if len(key) >= indexDigits {
		if n, err := strconv.ParseUint(key[:indexDigits], 16, 31); err == nil {
			return int(n)
		}
	}
	return HashIndex(sha1Hex(key)) // a key of another form
}

// IndexText is an index of HashIndex as digits of the key.
func IndexText(index int) string { return fmt.Sprintf("%0*x", indexDigits, index) }

// SubgroupKey is the label value by which the pods of one subgroup find each
// other: 40 hex digits. It leaves the namespace out; the API has it so.
func SubgroupKey(leaderPodName string, index int) string {
	return sha1Hex(leaderPodName + "/" + strconv.Itoa(index))
}

// sha1Hex tells names apart and guards nothing.
func sha1Hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}
