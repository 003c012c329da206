// What libcurl's public headers of 7.51 to 7.62 ask of their configuration, for 64-bit Linux.
#ifndef __CURL_CURLBUILD_H
#define __CURL_CURLBUILD_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define CURL_SIZEOF_LONG 8

#define CURL_TYPEOF_CURL_SOCKLEN_T socklen_t
#define CURL_SIZEOF_CURL_SOCKLEN_T 4
typedef CURL_TYPEOF_CURL_SOCKLEN_T curl_socklen_t;

#define CURL_TYPEOF_CURL_OFF_T int64_t
#define CURL_SIZEOF_CURL_OFF_T 8
typedef CURL_TYPEOF_CURL_OFF_T curl_off_t;
#define CURL_FORMAT_CURL_OFF_T "ld"
#define CURL_FORMAT_CURL_OFF_TU "lu"
#define CURL_FORMAT_OFF_T "%ld"
#define CURL_SUFFIX_CURL_OFF_T L
#define CURL_SUFFIX_CURL_OFF_TU UL

#endif
