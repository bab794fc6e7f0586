// Package revision says what a ControllerRevision of a LeaderWorkerSet holds, and which ones count.
//
// It knows the bytes of the data, which are part of the API, and when two of them mean the same. It
// is pure, and refuses to know when a revision is written.
//
// Files, each of which builds on those before it: defaults.go, data.go.
package revision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	strictjson "sigs.k8s.io/json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/quantity"
)

// namePrefix is the maximum length of the set's name within a revision's name.
const namePrefix = 220

// Data encodes what a revision of the set is made of: the group's template and the network configuration, and nothing
// else. maxGroupRestarts is in the template, and not in the data: no group is rolled for it. The bytes are part of the
// API: other implementations and their tests compute the same ones.
func Data(set *lwsv1.LeaderWorkerSet) ([]byte, error) {
	network := cmp.Or(set.Spec.NetworkConfig, &lwsv1.NetworkConfig{SubdomainPolicy: new(lwsv1.SubdomainShared)})
	rolled := set.Spec.LeaderWorkerTemplate
	rolled.MaxGroupRestarts = nil
	template, err := replacing(rolled)
	if err != nil {
		return nil, err
	}
	networkConfig, err := replacing(network)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"spec": map[string]any{
		"leaderWorkerTemplate": template,
		"networkConfig":        networkConfig,
	}})
}

// replacing encodes value as a map that, as a strategic merge patch, replaces
// what it is applied to. Going through a map sorts the keys.
func replacing(value any) (map[string]any, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode revision: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, fmt.Errorf("encode revision: %w", err)
	}
	fields["$patch"] = "replace"
	return fields, nil
}

// Key is the short hash that names a revision with the given data.
func Key(data []byte) string {
	hash := fnv.New32()
	_, _ = hash.Write(data)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

// content has the fields of a set that a revision keeps. Template may decode a part of the template.
type content[Template any] struct {
	Spec struct {
		LeaderWorkerTemplate *Template            `json:"leaderWorkerTemplate"`
		NetworkConfig        *lwsv1.NetworkConfig `json:"networkConfig"`
	} `json:"spec"`
}

var quantities = quantity.In[content[lwsv1.LeaderWorkerTemplate]]()

// Restore returns the set as it was at the revision with the given data: the live set with the revision's template and
// network configuration, and its own maxGroupRestarts. The result shares everything else with set. No schema has
// validated the data: its quantities are checked before they are decoded.
func Restore(set *lwsv1.LeaderWorkerSet, data []byte) (*lwsv1.LeaderWorkerSet, error) {
	if err := quantities.Check(data); err != nil {
		return nil, fmt.Errorf("decode revision: %w", err)
	}
	var stored content[lwsv1.LeaderWorkerTemplate]
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, &stored); err != nil {
		return nil, fmt.Errorf("decode revision: %.256s", err.Error()) // a decoder repeats a number of any length
	}
	if stored.Spec.LeaderWorkerTemplate == nil {
		return nil, fmt.Errorf("decode revision: %q is missing", "spec.leaderWorkerTemplate")
	}
	restored := *set
	restored.Spec.LeaderWorkerTemplate = *stored.Spec.LeaderWorkerTemplate
	restored.Spec.LeaderWorkerTemplate.MaxGroupRestarts = set.Spec.LeaderWorkerTemplate.MaxGroupRestarts
	restored.Spec.NetworkConfig = stored.Spec.NetworkConfig
	return &restored, nil
}

// Same reports whether stored data means the same as the data of the live set: the same bytes, the same bytes after
// encoding with the types of this version, or the same values apart from defaults.
func Same(set *lwsv1.LeaderWorkerSet, stored, live []byte) bool {
	if bytes.Equal(stored, live) {
		return true
	}
	restored, err := Restore(set, stored)
	if err != nil {
		return false
	}
	again, err := Data(restored)
	return err == nil && (bytes.Equal(again, live) || SameMeaning(again, live))
}

// Genuine reports whether a ControllerRevision has the name of the set, and a key to which its data hashes. Other
// implementations create a lost revision again under the key that the groups run, with the data of the spec. Such a
// revision has its own hash in its name: it counts where it has a controller, since anyone may create one without.
func Genuine(revision *appsv1.ControllerRevision, setName string) bool {
	key, hash := revision.Labels[lwsv1.RevisionKey], Key(revision.Data.Raw)
	isReplaced := key != "" && metav1.GetControllerOf(revision) != nil && strings.HasPrefix(revision.Name, stem(setName, hash))
	isListed := InUse(revision, setName) || revision.Labels[HistoryLabelKey] == setName
	return isListed && (key == hash || isReplaced)
}

// Name is the name of a set's revision with the given hash and number.
func Name(setName, hash string, number int64) string {
	return stem(setName, hash) + strconv.FormatInt(number, 10)
}

func stem(setName, hash string) string {
	return setName[:min(len(setName), namePrefix)] + "-" + hash + "-"
}

// Agrees reports whether the data of a revision says what the spec says. volumeClaimTemplates do
// not count: no rollout changes them.
func Agrees(set *lwsv1.LeaderWorkerSet, data []byte) bool {
	revision, err := Restore(set, data)
	if err != nil {
		return false
	}
	live, err := Data(volumes.WithTemplates(set, volumes.Templates(revision)))
	return err == nil && Same(set, data, live)
}

const (
	// HistoryLabelKey on a revision that no group runs is the set's name, in place of the label that
	// revisions in use have.
	HistoryLabelKey = "lockstep.dev/history-of"

	// ChangeCauseAnnotationKey on a set is why its user changed it. Kubernetes'
	// own tools write and show it.
	ChangeCauseAnnotationKey = "kubernetes.io/change-cause"
)

// Title names a revision by its number and its key. A number that is unknown is 0.
func Title(number int64, key string) string {
	if number == 0 {
		return key
	}
	return fmt.Sprintf("%d (%s)", number, key)
}

// Counting returns the revisions that count, in no particular order: genuine ones that the set owns
// or adopts.
func Counting(claim identity.Claim[*appsv1.ControllerRevision], setName string) []*appsv1.ControllerRevision {
	return slices.DeleteFunc(slices.Concat(claim.Owned, claim.Orphans), func(r *appsv1.ControllerRevision) bool { return !Genuine(r, setName) })
}

// WithKey returns the latest revision with the key, or nil. A revision whose data
// hashes to the key precedes one that was created again under the key.
func WithKey(revisions []*appsv1.ControllerRevision, key string) *appsv1.ControllerRevision {
	keyed := func(r *appsv1.ControllerRevision) bool { return r.Labels[lwsv1.RevisionKey] == key }
	exact := func(r *appsv1.ControllerRevision) bool { return keyed(r) && Key(r.Data.Raw) == key }
	return cmp.Or(Latest(revisions, exact), Latest(revisions, keyed))
}

// RestoredAt returns the set as it was at the revision with the key.
func RestoredAt(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], key string) (*lwsv1.LeaderWorkerSet, error) {
	found := WithKey(Counting(revisions, set.Name), key)
	if found == nil {
		return nil, fmt.Errorf("there is no revision %q", key)
	}
	restored, err := Restore(set, found.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("revision %s cannot be read: %w", found.Name, err)
	}
	return restored, nil
}

// Latest returns the revision that fits and has the highest number, by name among equals: a
// cache lists in any order.
func Latest(revisions []*appsv1.ControllerRevision, fits func(*appsv1.ControllerRevision) bool) *appsv1.ControllerRevision {
	var found *appsv1.ControllerRevision
	for _, r := range revisions {
		if fits(r) && (found == nil || r.Revision > found.Revision || r.Revision == found.Revision && r.Name < found.Name) {
			found = r
		}
	}
	return found
}

// Knows reports whether the revisions include one of the set with the key.
func Knows(revisions identity.Claim[*appsv1.ControllerRevision], setName, key string) bool {
	return WithKey(Counting(revisions, setName), key) != nil
}

// InUse reports whether a revision is listed among those that groups run.
func InUse(revision *appsv1.ControllerRevision, setName string) bool {
	return workload.BearsName(revision, setName)
}

type restarts struct {
	Policy lwsv1.RestartPolicyType `json:"restartPolicy"`
}

// PolicyAt returns the restart policy of the revision with the key. A group whose revision is lost has that of the set.
func PolicyAt(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], key string) lwsv1.RestartPolicyType {
	found, stored := WithKey(Counting(revisions, set.Name), key), content[restarts]{}
	if found == nil || strictjson.UnmarshalCaseSensitivePreserveInts(found.Data.Raw, &stored) != nil || stored.Spec.LeaderWorkerTemplate == nil {
		return set.Spec.LeaderWorkerTemplate.RestartPolicy
	}
	return stored.Spec.LeaderWorkerTemplate.Policy
}
