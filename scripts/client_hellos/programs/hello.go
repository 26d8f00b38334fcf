// crypto/tls: hello ADDRESS NAME HIGHEST [PROTOCOL...]
package main

import (
	"crypto/tls"
	"fmt"
	"os"
)

func main() {
	versions := map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	config := tls.Config{ServerName: os.Args[2], MinVersion: tls.VersionTLS10, MaxVersion: versions[os.Args[3]], NextProtos: os.Args[4:]}
	_, err := tls.Dial("tcp", os.Args[1], &config)
	fmt.Println(err)
}
