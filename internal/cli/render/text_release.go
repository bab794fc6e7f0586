package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// WriteRelease writes what somebody reads who is about to break the glass: who
// uses the claim, what is written, and what cannot be taken back. writes tells
// whether a token is to be written.
func (c *ClaimWhy) WriteRelease(out io.Writer, now time.Time, deletes, writes bool) error {
	var text strings.Builder
	c.head(&text, now)
	c.holders(&text, now)
	c.blockers(&text)
	c.unread(&text)
	fmt.Fprint(&text, "\nTHIS WILL\n")
	if writes {
		fmt.Fprintf(&text, "  write %s=%s on the claim: its deletion is not refused any more\n", pvc.ReleaseAnnotation, c.UID)
	}
	if deletes {
		fmt.Fprintf(&text, "  delete the claim: %s\n", c.released())
	} else {
		fmt.Fprintf(&text, "  delete nothing; whoever deletes it then: %s\n", c.released())
	}
	for _, line := range c.Then {
		fmt.Fprintf(&text, "  once it is gone: %s\n", line)
	}
	if c.Volume != nil && c.Volume.Standing == volumeBound && c.Volume.ReclaimPolicy == string(corev1.PersistentVolumeReclaimDelete) {
		fmt.Fprintf(&text, "\nTo keep the data, before anything else:\n      %s\n", pvc.RetainCommand(c.Volume.Name))
	}
	return show(out, text.String())
}

// released is what becomes of the claim once it is deleted.
func (c *ClaimWhy) released() string {
	keeping := c.keepingDeleted()
	if len(keeping) == 0 {
		return "it goes at once, and that cannot be taken back"
	}
	return "no pod can start on it any more, it stays until " + letGo(keeping) + ", and that cannot be taken back"
}

// WriteNamespaceRelease writes the same for a namespace.
func WriteNamespaceRelease(out io.Writer, n *corev1.Namespace) error {
	_, err := fmt.Fprintf(out, `namespace/%[1]s has claims in use: %[2]s. See who uses them with: kubectl lockstep why pvc -n %[1]s

THIS WILL
  write %[3]s=%[4]s on the namespace: its deletion is not refused any more
  delete nothing; whoever deletes it then: everything in it goes, its claims in use among it, and that cannot be taken back
`, n.Name, n.Annotations[pvc.HeldClaimsAnnotation], pvc.ReleaseAnnotation, n.UID)
	return err
}
