# about: ffmpeg encodes and decodes video and sound in threads; checksums compared
# programs: ffmpeg
# needs: ffmpeg

quiet='-hide_banner -nostdin -loglevel error'
input='-f lavfi -i testsrc2=duration=4:size=640x360:rate=25 -f lavfi -i sine=frequency=440:duration=4'
exact='-threads 4 -flags +bitexact -fflags +bitexact'
$RUN ffmpeg $quiet $input $exact -c:v mpeg4 -c:a flac clip.mkv || exit 1
digest <clip.mkv
$RUN ffmpeg $quiet -i clip.mkv -vf scale=320:180,transpose=1,hflip -f framemd5 - | digest
$RUN ffmpeg $quiet $input $exact -c:v libx264 -preset veryfast -c:a aac -f md5 - || exit 1
$RUN ffmpeg $quiet -i no-such-file.mkv -f null - 2>&1
echo "an error: $?"
