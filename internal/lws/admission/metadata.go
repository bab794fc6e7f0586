package admission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// checkMetadata holds a new set to what every object is held to, and its name
// to a DNS-1035 label: it becomes the name of a Service.
func checkMetadata(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&set.ObjectMeta, true, apivalidation.NameIsDNS1035Label, field.NewPath("metadata"))
}

// checkMetadataUpdate leaves a name alone that is already there: nobody can
// change it any more.
func checkMetadataUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	if equality.Semantic.DeepEqual(set.ObjectMeta, old.ObjectMeta) {
		return nil
	}
	name := apivalidation.NameIsDNS1035Label
	if set.Name == old.Name && set.Name != "" {
		name = anyName
	}
	return apivalidation.ValidateObjectMeta(&set.ObjectMeta, true, name, field.NewPath("metadata"))
}

func anyName(string, bool) []string { return nil }
