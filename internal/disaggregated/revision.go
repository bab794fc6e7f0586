package disaggregated

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// hashed is what a revision says of a role. The bytes are part of the API: other implementations compute the same.
type hashed struct {
	Name          string                     `json:"name"`
	GroupIdentity lwsv1.GroupIdentityType    `json:"groupIdentity,omitempty"`
	Template      lwsv1.LeaderWorkerTemplate `json:"template"`
}

// RevisionOf names what the roles of a set run: the order, names, group identities and templates of all roles.
func RevisionOf(roles []dsv1.DisaggregatedRole) (string, error) {
	encoded, err := json.Marshal(Content(roles))
	if err != nil {
		return "", fmt.Errorf("encode the roles: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])[:8], nil
}

// Content is what a revision says of the roles of a set.
func Content(roles []dsv1.DisaggregatedRole) any {
	all := make([]hashed, len(roles))
	for i := range roles {
		all[i] = hashed{Name: roles[i].Name, Template: roles[i].Spec.LeaderWorkerTemplate}
		if id := roles[i].Spec.GroupIdentity; id != lwsv1.OrdinalGroupIdentity {
			all[i].GroupIdentity = id
		}
	}
	return all
}

// Record returns the ControllerRevision that keeps the roles of a set at its revision. An undo reads it. Its name has a part
// of the UID: a set that is created again does not wait for the history of the previous one.
func Record(set *dsv1.DisaggregatedSet, revision string, number int64) *appsv1.ControllerRevision {
	roles, _ := json.Marshal(map[string]any{"roles": set.Spec.Roles}) // they were encoded for the revision
	var sorted map[string]any                                         // a patch sorts keys, and the data of a ControllerRevision may not change
	if utiljson.Unmarshal(roles, &sorted) == nil {
		roles, _ = json.Marshal(sorted)
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + revision + "-" + string(set.UID)[:min(8, len(set.UID))], OwnerReferences: ownedBy(set, false),
			Labels: map[string]string{dsv1.SetNameLabelKey: set.Name, dsv1.RevisionLabelKey: revision},
		},
		Data: runtime.RawExtension{Raw: roles}, Revision: number,
	}
}

// RolesOf returns the roles that a record keeps.
func RolesOf(record *appsv1.ControllerRevision) ([]dsv1.DisaggregatedRole, error) {
	var kept struct {
		Roles []dsv1.DisaggregatedRole `json:"roles"`
	}
	if err := json.Unmarshal(record.Data.Raw, &kept); err != nil {
		return nil, fmt.Errorf("decode controllerrevision %q: %w", record.Name, err)
	}
	return kept.Roles, nil
}
