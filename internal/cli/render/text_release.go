package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// WriteRelease writes what a user confirms: the holders, what is written, and what cannot
// be undone. writes reports whether a token is written.
func (c *ClaimWhy) WriteRelease(out io.Writer, now time.Time, deletes, writes bool) error {
	var text strings.Builder
	c.head(&text, now)
	c.holders(&text, now)
	c.unread(&text)
	fmt.Fprint(&text, "\nTHIS WILL\n")
	if writes {
		fmt.Fprintf(&text, "  write %s=%s on the PVC: a DELETE is no longer refused\n", pvc.ReleaseAnnotation, c.UID)
	}
	deletion := "it is removed at once"
	if keeping := c.keepingDeleted(); len(keeping) > 0 {
		deletion = "no new pod can start on it, and it stays until these are gone: " + few(keeping)
	}
	if deletes {
		fmt.Fprintf(&text, "  delete the PVC: %s; this cannot be undone\n", deletion)
	} else {
		fmt.Fprintf(&text, "  delete nothing; after a DELETE by any user, %s\n", deletion)
	}
	for _, line := range c.Then {
		fmt.Fprintf(&text, "  once it is gone: %s\n", line)
	}
	if c.Volume != nil && c.Volume.Standing == volumeBound && c.Volume.ReclaimPolicy == string(corev1.PersistentVolumeReclaimDelete) {
		fmt.Fprintf(&text, "\nTo keep the data, before anything else:\n      %s\n", pvc.RetainCommand(c.Volume.Name))
	}
	return show(out, text.String())
}

// WriteNamespaceRelease writes the same for a namespace.
func WriteNamespaceRelease(out io.Writer, n client.Object) error {
	_, err := fmt.Fprintf(out, `namespace/%[1]s has PVCs in use: %[2]s. Their holders: kubectl lockstep why pvc -n %[1]s

THIS WILL
  write %[3]s=%[4]s on the namespace: a DELETE is no longer refused
  delete nothing; a DELETE by any user then deletes all in it, PVCs in use included
`, n.GetName(), n.GetAnnotations()[pvc.HeldClaimsAnnotation], pvc.ReleaseAnnotation, n.GetUID())
	return err
}
