// Command go-load plays the kubelet against a driver's DRA socket, and times the calls.
//
//	go-load -socket SOCKET -claims FILE [-per-call N] [-at-once N] [-phases prepare,again,unprepare]
//
// FILE is a JSON list of claims, {"namespace", "name", "uid"}, that the driver can prepare. Each phase makes the calls
// for all of them, in order, and prints one JSON object. The first claim that gets an error ends it.
//
// Calls go through grpc-go, from a target with the scheme "unix:", as the kubelet's do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

// The kubelet's own limit for a call.
const callTimeout = 45 * time.Second

// figures are what a phase prints; times are in milliseconds.
type figures struct {
	Phase  string  `json:"phase"`
	Claims int     `json:"claims"`
	Total  float64 `json:"total"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
}

type call func(context.Context, []*dra.Claim) error

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "go-load:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "the driver's DRA socket")
	file := flag.String("claims", "", "JSON file with the claims")
	perCall := flag.Int("per-call", 1, "claims in one call")
	atOnce := flag.Int("at-once", 1, "calls at once")
	phases := flag.String("phases", "prepare,again,unprepare", "what to do with all claims, in this order")
	flag.Parse()
	if *socket == "" || *file == "" || *perCall < 1 || *atOnce < 1 || flag.NArg() > 0 {
		return errors.New("usage: go-load -socket SOCKET -claims FILE [-per-call N] [-at-once N] [-phases A,B]")
	}
	claims, err := readClaims(*file)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix:"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("dialing %s: %w", *socket, err)
	}
	defer connection.Close()
	if err := connect(connection); err != nil {
		return err
	}
	driver := driver{dra.NewDRAPluginClient(connection)}
	calls := map[string]call{"prepare": driver.prepare, "again": driver.prepare, "unprepare": driver.unprepare}
	batches := slices.Collect(slices.Chunk(claims, *perCall))
	for _, phase := range strings.Split(*phases, ",") {
		call, ok := calls[phase]
		if !ok {
			return fmt.Errorf("there is no phase %q: prepare, again, unprepare", phase)
		}
		times, total, err := callAll(call, batches, *atOnce)
		if err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		slices.Sort(times)
		printed := figures{phase, len(claims), milliseconds(total), quantile(times, 0.5), quantile(times, 0.99)}
		if err := json.NewEncoder(os.Stdout).Encode(printed); err != nil {
			return err
		}
	}
	return nil
}

// connect lets no phase pay for the connection.
func connect(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	connection.Connect()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if !connection.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%s: not connected after %s", connection.Target(), callTimeout)
		}
	}
	return nil
}

func readClaims(path string) ([]*dra.Claim, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var claims []*dra.Claim
	if err := json.Unmarshal(content, &claims); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(claims) == 0 {
		return nil, fmt.Errorf("%s has no claims", path)
	}
	return claims, nil
}

// callAll makes a call for each batch, so many at once. It gives how long each took, and all together.
func callAll(call call, batches [][]*dra.Claim, atOnce int) ([]time.Duration, time.Duration, error) {
	times := make([]time.Duration, len(batches))
	failures := make([]error, len(batches))
	next := make(chan int, len(batches))
	for index := range batches {
		next <- index
	}
	close(next)
	var callers sync.WaitGroup
	start := time.Now()
	for range atOnce {
		callers.Go(func() {
			for index := range next {
				ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
				begin := time.Now()
				failures[index] = call(ctx, batches[index])
				times[index] = time.Since(begin)
				cancel()
			}
		})
	}
	callers.Wait()
	return times, time.Since(start), errors.Join(failures...)
}

type driver struct{ client dra.DRAPluginClient }

func (d driver) prepare(ctx context.Context, claims []*dra.Claim) error {
	answer, err := d.client.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: claims})
	if err != nil {
		return err
	}
	for _, claim := range claims {
		got := answer.Claims[claim.Uid]
		switch {
		case got == nil:
			return fmt.Errorf("no answer for claim %s", claim.Name)
		case got.Error != "":
			return fmt.Errorf("claim %s: %s", claim.Name, got.Error)
		case len(got.Devices) != 1 || len(got.Devices[0].CdiDeviceIds) == 0:
			return fmt.Errorf("claim %s has not one device with a CDI id: %v", claim.Name, got.Devices)
		}
	}
	return nil
}

func (d driver) unprepare(ctx context.Context, claims []*dra.Claim) error {
	answer, err := d.client.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil {
		return err
	}
	for _, claim := range claims {
		got := answer.Claims[claim.Uid]
		if got == nil {
			return fmt.Errorf("no answer for claim %s", claim.Name)
		}
		if got.Error != "" {
			return fmt.Errorf("claim %s: %s", claim.Name, got.Error)
		}
	}
	return nil
}

// quantile of a sorted list.
func quantile(sorted []time.Duration, part float64) float64 {
	return milliseconds(sorted[int(part*float64(len(sorted)-1))])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
