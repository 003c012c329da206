# about: ghostscript renders a page and writes a PDF
# programs: gs
# needs: gs

cat >page.ps <<'END'
%!PS
/Times-Roman findfont 14 scalefont setfont
0 1 40 { /i exch def 72 720 i 16 mul sub moveto i 20 string cvs show ( squared is ) show i i mul 20 string cvs show } for
0 1 359 { /a exch def gsave 400 400 translate a rotate a 360 div dup 1 exch sub 0.5 setrgbcolor
  0 0 moveto 150 0 lineto 150 a 10 mod lineto closepath fill grestore } for
0 1 2000 { dup array pop 500 string pop pop } for
showpage
END
$RUN gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=png16m -r100 -dNumRenderingThreads=4 -dMaxBitmap=0 -sOutputFile=page.ppm -sDEVICE=ppmraw page.ps || exit 1
digest <page.ppm
$RUN gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=pdfwrite -sOutputFile=page.pdf page.ps || exit 1
$RUN gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=ppmraw -r100 -sOutputFile=again.ppm page.pdf || exit 1
digest <again.ppm
$RUN gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=nullpage no-such-file.ps 2>&1
echo "an error: $?"
