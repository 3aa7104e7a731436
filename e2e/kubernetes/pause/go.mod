module dra.test/pause

go 1.24.0
