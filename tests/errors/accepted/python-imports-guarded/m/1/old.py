print "Python 2"
