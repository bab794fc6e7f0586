package action

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// Standing is what a write relies on: objects of one kind, in one namespace. Objects with a
// deletionTimestamp count as gone.
type Standing struct {
	Kind      identity.Kind
	Namespace string
	// Name, when set, is the name of the only object meant.
	Name string
	// Labels are those of all objects meant.
	Labels map[string]string
	// Of, when set, is the UID of the controller of all objects meant.
	Of types.UID
	// None is set if no object may exist.
	None bool
	// There are the objects that must exist.
	There []types.UID
	// Unchanged are the objects that must be the versions that were judged.
	Unchanged []identity.Ref
	// Specified are the objects whose specs must be of the generations that were judged.
	Specified map[types.UID]int64
	// Absent are names that no object may have.
	Absent []string
}

// Broken returns what does not hold of the objects that exist now, or "".
func (s Standing) Broken(now []metav1.ObjectMeta) string {
	objects, names := map[types.UID]*metav1.ObjectMeta{}, map[string]bool{}
	for i := range now {
		if now[i].DeletionTimestamp != nil || !s.means(&now[i]) {
			continue
		}
		if s.None {
			return fmt.Sprintf("%s %s is there", s.Kind, now[i].Name)
		}
		objects[now[i].UID], names[now[i].Name] = &now[i], true
	}
	for _, uid := range s.There {
		if objects[uid] == nil {
			return fmt.Sprintf("%s with uid %s is gone or going", s.Kind, uid)
		}
	}
	for _, ref := range s.Unchanged {
		if found := objects[ref.UID]; found == nil || found.ResourceVersion != ref.ResourceVersion {
			return ref.String() + " changed"
		}
	}
	for uid, generation := range s.Specified {
		if found := objects[uid]; found == nil || found.Generation != generation {
			return fmt.Sprintf("%s with uid %s is of another spec, gone or going", s.Kind, uid)
		}
	}
	for _, name := range s.Absent {
		if names[name] {
			return fmt.Sprintf("%s %s is there", s.Kind, name)
		}
	}
	return ""
}

func (s Standing) means(found *metav1.ObjectMeta) bool {
	if s.Of == "" {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(found)
	return owner != nil && owner.UID == s.Of
}
