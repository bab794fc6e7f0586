package pvc

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CountHeld is what has to change on a namespace for it to tell how many of its
// claims are held: an empty value takes the annotation away. On its way out, a
// namespace needs no telling.
func CountHeld(namespace metav1.Object, claims []corev1.PersistentVolumeClaim) map[string]string {
	if namespace.GetDeletionTimestamp() != nil {
		return nil
	}
	held := 0
	for i := range claims {
		if claim := &claims[i]; claim.Annotations[HoldersAnnotation] != "" && claim.DeletionTimestamp == nil {
			held++
		}
	}
	want := ""
	if held > 0 {
		want = strconv.Itoa(held)
	}
	if stands, ok := namespace.GetAnnotations()[HeldClaimsAnnotation]; stands == want && ok == (want != "") {
		return nil
	}
	return map[string]string{HeldClaimsAnnotation: want}
}
