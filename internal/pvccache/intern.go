package pvccache

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// one is the same string, held in memory once.
func one(text string) string { return unique.Make(text).Value() }

func internMap(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	interned := make(map[string]string, len(texts))
	for key, value := range texts {
		interned[one(key)] = one(value)
	}
	return interned
}

// internMetadata has objects share the texts that they have in common.
func internMetadata(meta *metav1.ObjectMeta) {
	meta.Namespace, meta.GenerateName = one(meta.Namespace), one(meta.GenerateName)
	meta.Labels, meta.Annotations = internMap(meta.Labels), internMap(meta.Annotations)
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
	}
}
