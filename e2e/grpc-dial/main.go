// Command grpc-dial asks a kubelet plugin for its information, dialing as the kubelet's plugin manager does.
//
//	grpc-dial SOCKET
//
// What matters is the target: a bare path without a scheme. grpc-go then sends the path, percent-encoded, as the
// HTTP/2 :authority, which some servers refuse before any service sees the call. The kubelet's later connection to the
// plugin's own service has the scheme "unix:" and the authority "localhost", so it does not tell the difference.
//
// Prints the answer and the time that it took as one JSON object. Exit status: 0 answered, 1 not answered, 2 misused.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// The kubelet's own limits (1.34 to 1.37).
const (
	dialTimeout = 10 * time.Second
	infoTimeout = time.Second
)

type answer struct {
	Type              string   `json:"type"`
	Name              string   `json:"name"`
	Endpoint          string   `json:"endpoint"`
	SupportedVersions []string `json:"supportedVersions"`
	Milliseconds      float64  `json:"milliseconds"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: grpc-dial SOCKET")
		os.Exit(2)
	}
	got, err := ask(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "grpc-dial: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		fmt.Fprintln(os.Stderr, "grpc-dial:", err)
		os.Exit(1)
	}
}

func ask(socket string) (*answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	// Deprecated, and still what the kubelet calls: NewClient would resolve the target in another way.
	connection, err := grpc.DialContext(ctx, socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("dialing: %w", err)
	}
	defer connection.Close()

	ctx, cancel = context.WithTimeout(context.Background(), infoTimeout)
	defer cancel()
	start := time.Now()
	info, err := registration.NewRegistrationClient(connection).GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("GetInfo: %w", err)
	}
	return &answer{
		Type:              info.Type,
		Name:              info.Name,
		Endpoint:          info.Endpoint,
		SupportedVersions: info.SupportedVersions,
		Milliseconds:      float64(time.Since(start).Microseconds()) / 1000,
	}, nil
}
