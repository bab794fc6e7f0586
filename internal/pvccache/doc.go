// Package pvccache reads PVCs and what may use them: pods, workloads, volumes and
// nodes.
//
// It turns what it reads into the views that package pvc decides from. It refuses
// to decide anything, and it never writes.
package pvccache
